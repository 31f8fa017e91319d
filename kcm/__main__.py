"""`python -m kcm` is the command `kcm`."""

from kcm.cmd import main

if __name__ == "__main__":
    main()
