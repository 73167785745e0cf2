"""``python -m daskkern`` is ``daskkern``."""

from daskkern.cli.main import main

if __name__ == "__main__":
    main()
