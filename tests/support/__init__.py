"""What the tests share: the program under test, calls of the generated package, guards, and ways to break a call."""
