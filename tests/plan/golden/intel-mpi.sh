# Intel MPI's allreduce by size: algorithm:from-to@ranks
export I_MPI_ADJUST_ALLREDUCE='1:0-8191@4;2:65536-1048575@4;8:1048576-16777215@4'
