"""The program itself: commands that run the console on this machine, and completion in shells."""
