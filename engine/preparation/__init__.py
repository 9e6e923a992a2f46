"""Changes to a model before its analysis: ``Model -> Model``, each step as far as a command needs it."""
