package lab

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// frames is how deep a backtrace goes at most.
const frames = 16

// backtrace says at which addresses a process is, innermost first: its own, then where each
// function returns to. User-mode Linux is compiled with frame pointers: each frame begins with
// the address of its caller's frame. Debian's has no symbols, but /proc/kallsyms of any
// guest names them: it is not loaded at random.
func backtrace(pid int) (string, error) {
	regs, err := registers(pid)
	if err != nil {
		return "", fmt.Errorf("registers of process %d: %w", pid, err)
	}
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		return "", err
	}
	defer memory.Close()
	text := fmt.Sprintf("%#x", regs.Rip)
	for frame, n := regs.Rbp, 0; n < frames; n++ {
		var link [16]byte
		if _, err := memory.ReadAt(link[:], int64(frame)); err != nil {
			break // the stack's end
		}
		next := binary.LittleEndian.Uint64(link[:])
		text += fmt.Sprintf(" < %#x", binary.LittleEndian.Uint64(link[8:]))
		if next <= frame {
			break
		}
		frame = next
	}
	return text, nil
}

// registers stops a process for the moment it takes to read them: ptrace(2).
func registers(pid int) (regs unix.PtraceRegs, err error) {
	runtime.LockOSThread() // a process is traced by a thread
	defer runtime.UnlockOSThread()
	if err := unix.PtraceSeize(pid); err != nil {
		return regs, err
	}
	defer unix.PtraceDetach(pid)
	if err := unix.PtraceInterrupt(pid); err != nil {
		return regs, err
	}
	if _, err := unix.Wait4(pid, nil, unix.WALL, nil); err != nil {
		return regs, err
	}
	return regs, unix.PtraceGetRegs(pid, &regs)
}
