package lab

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
)

// stackSize is how much of a stack is looked at: all of one of user-mode Linux.
const stackSize = 16 << 10

// backtrace says at which addresses a process is that runs image: its own, then where the
// functions return to, innermost first. Debian's user-mode Linux has no symbols, but
// /proc/kallsyms of any guest names the addresses: it is not loaded at random.
//
// ptrace(2) would give all registers, and its stops to whoever waits for the process's end: that
// is os/exec, in this very process. So it is stopped by a signal.
func backtrace(pid int, image string) (string, error) {
	program, err := elf.Open(image)
	if err != nil {
		return "", err
	}
	defer program.Close()
	text := program.Section(".text")
	if text == nil {
		return "", fmt.Errorf("%s has no section .text", image)
	}
	sp, pc, err := where(pid)
	if err != nil {
		return "", fmt.Errorf("where is process %d: %w", pid, err)
	}
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		return "", err
	}
	defer memory.Close()
	stack := make([]byte, stackSize)
	n, _ := memory.ReadAt(stack, int64(sp)) // it may end sooner
	inText := func(a uint64) bool { return a >= text.Addr && a < text.Addr+text.Size }
	trace := fmt.Sprintf("%#x", pc)
	for _, a := range returns(stack[:n], sp, inText) {
		trace += fmt.Sprintf(" < %#x", a)
	}
	return trace, nil
}

// where is a process's stack pointer and program counter: proc_pid_syscall(5), which tells of
// processes that do not run.
func where(pid int) (sp, pc uint64, err error) {
	before, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, err
	}
	s, err := parseStat(string(before))
	if err != nil {
		return 0, 0, err
	}
	if s.state != "T" {
		defer syscall.Kill(pid, syscall.SIGCONT)
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return 0, 0, err
	}
	for start := time.Now(); ; time.Sleep(time.Millisecond) {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", pid))
		if err != nil {
			return 0, 0, err
		}
		f := strings.Fields(string(line))
		if len(f) >= 3 {
			_, err := fmt.Sscanf(strings.Join(f[len(f)-2:], " "), "0x%x 0x%x", &sp, &pc)
			return sp, pc, err
		}
		if time.Since(start) > time.Second {
			return 0, 0, fmt.Errorf("it does not stop: %q", line)
		}
	}
}

// returns are the addresses that a stack's frames return to. Each frame begins with the address
// of its caller's, and behind it is where it returns to. The first is the first that looks like
// one.
func returns(stack []byte, sp uint64, inText func(uint64) bool) (list []uint64) {
	word := func(a uint64) uint64 { return binary.LittleEndian.Uint64(stack[a-sp:]) }
	holds := func(a uint64) bool { return a >= sp && a+16 <= sp+uint64(len(stack)) }
	frame := sp
	for ; holds(frame); frame += 8 {
		if up := word(frame); up > frame && holds(up) && inText(word(frame+8)) && inText(word(up+8)) {
			break
		}
	}
	for holds(frame) {
		list = append(list, word(frame+8))
		up := word(frame)
		if up <= frame {
			break
		}
		frame = up
	}
	return list
}
