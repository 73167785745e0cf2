"""Machine code for this processor, compiled by LLVM when it is first used; needs llvmlite."""
