"""`python -m torch_tern` is the command `tern`."""
import sys

from torch_tern.cli import main

sys.exit(main())
