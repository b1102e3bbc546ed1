# Building for 64-bit ARM on another machine, the tests run by qemu: `make test-arm`. From Debian: gcc-aarch64-linux-gnu, qemu-user, libcmocka-dev:arm64 (after dpkg --add-architecture arm64).
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64;-L;/)
set(CMAKE_FIND_ROOT_PATH /usr/lib/aarch64-linux-gnu)
set(TERN_CMOCKA_LIBRARY /usr/lib/aarch64-linux-gnu/libcmocka.so)
set(TERN_CMOCKA_INCLUDE /usr/include)
