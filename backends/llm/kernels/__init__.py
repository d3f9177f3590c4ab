"""CPU kernels in C++, and how they are compiled once for the machine they run on."""
