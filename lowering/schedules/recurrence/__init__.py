"""The steps of recurrent networks, from register tiles of all gates of some units."""
