# install(), the CMake package `pipit` and its pkg-config file.
