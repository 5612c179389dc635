/* Put before the system's library: the write or sync that is counted down to fails. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static int due(const char *name) {
    const char *left = getenv(name);
    char text[16];
    int count = left ? atoi(left) : 0;
    if (count < 1)
        return 0;
    snprintf(text, sizeof text, "%d", count - 1);
    setenv(name, text, 1);
    return count == 1;
}

static int synced(int fd, long call) {
    if (due("FAIL_SYNC")) {
        errno = EIO;
        return -1;
    }
    return (int)syscall(call, fd);
}

int fsync(int fd) { return synced(fd, SYS_fsync); }
int fdatasync(int fd) { return synced(fd, SYS_fdatasync); }

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
    if (due("FAIL_WRITE")) { /* Half of it is written. */
        syscall(SYS_pwrite64, fd, data, size / 2, at);
        errno = EIO;
        return -1;
    }
    if (due("FULL_WRITE")) {
        errno = ENOSPC;
        return -1;
    }
    if (due("SHORT_WRITE") && size > 1)
        size /= 2;
    return syscall(SYS_pwrite64, fd, data, size, at);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
    return pwrite64(fd, data, size, at);
}
