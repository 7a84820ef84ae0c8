// Preloaded into linux.uml. User-mode Linux keeps a program's floating point state in a buffer
// whose size was fixed at compile time (2696 bytes, AVX-512). On a processor with AMX the state
// is 11008 bytes, and PTRACE_SETREGSET takes a whole one or answers EFAULT
// (xstateregs_set in arch/x86/kernel/fpu/regset.c), so the guest's init would die at once:
// "ptrace set fp regs failed, errno = 14". Here the state is written from a buffer that is large
// enough. What lies beyond UML's own buffer is AMX tiles, which no guest program can ask for;
// their bits in the state's header are never set, so the zeros are not even looked at.
//
// The kernel's C library calls run on its small stacks, one at a time (no preemption, one
// CPU): hence the static buffer. No call here allocates.
//
// And a guest that reboots ends, as in QEMU with -no-reboot: whoever runs it boots it again.
// By itself linux.uml then calls execvp as it does when it starts, and keeps its files: its tap
// is busy, and the guest has no network ("switch on vec0: invalid argument").

#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define GETREGSET 0x4204
#define SETREGSET 0x4205

static char state[64 * 1024] __attribute__((aligned(64)));
static int ran;     // a guest ran in this process
static size_t size; // of the whole state on this machine, 0: not asked yet

// full_size asks the kernel for the size of the state: GETREGSET answers what there is.
static size_t full_size(long pid)
{
	struct iovec whole = { state, sizeof state };
	if (syscall(SYS_ptrace, GETREGSET, pid, NT_X86_XSTATE, &whole) < 0)
		return 0;
	memset(state, 0, sizeof state);
	return whole.iov_len;
}

long ptrace(int request, ...)
{
	va_list args;
	va_start(args, request);
	long pid = va_arg(args, int);
	void *addr = va_arg(args, void *);
	void *data = va_arg(args, void *);
	va_end(args);

	ran = 1;
	if (request >= 1 && request <= 3) { // PEEK*: the C library returns the word
		long word, result = syscall(SYS_ptrace, request, pid, addr, &word);
		if (result < 0)
			return result;
		errno = 0;
		return word;
	}
	if (request == SETREGSET && (long)addr == NT_X86_XSTATE) {
		struct iovec *given = data;
		if (size == 0)
			size = full_size(pid);
		if (given->iov_len < size) {
			struct iovec whole = { state, size };
			memcpy(state, given->iov_base, given->iov_len);
			return syscall(SYS_ptrace, request, pid, addr, &whole);
		}
	}
	return syscall(SYS_ptrace, request, pid, addr, data);
}

int execvp(const char *file, char *const argv[])
{
	if (ran)
		_exit(0);
	return execvpe(file, argv, environ);
}
