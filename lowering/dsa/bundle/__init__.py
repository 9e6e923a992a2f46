"""The files of a program for an accelerator, and running and verifying what they hold."""
