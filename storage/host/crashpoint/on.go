//go:build crashpoints

package crashpoint

import (
	"fmt"
	"os"
	"sync"
	"syscall"
)

// Enabled tells whether this binary can be crashed.
const Enabled = true

var (
	mu    sync.Mutex
	count int
	at    = os.Getenv("PILLAR_CRASH_AT")
	log   = os.Getenv("PILLAR_CRASH_LOG")
)

// Before counts an effect and kills the process if the test asked for it here.
func Before(kind, what string) {
	mu.Lock()
	defer mu.Unlock()
	count++
	record(kind, what)
	die("before")
}

// After kills the process if the test asked for it after the newest effect.
func After(kind, what string) {
	mu.Lock()
	defer mu.Unlock()
	die("after")
}

func die(when string) {
	if at == fmt.Sprintf("%s:%d", when, count) {
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // the signal is on its way; do nothing more
	}
}

func record(kind, what string) {
	if log == "" {
		return
	}
	f, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err) // a crash test without its log proves nothing
	}
	defer f.Close()
	fmt.Fprintf(f, "%d %s %s\n", count, kind, what)
}
