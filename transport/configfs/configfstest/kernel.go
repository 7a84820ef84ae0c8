// Package configfstest holds a configfs to the kernel's rules for nvmet, the real one in a
// lab guest as well as the one of package memory, and records what that one is asked to do:
// a package's order of writes is tested without a kernel.
package configfstest

import (
	"sync"

	"github.com/pillar-csi/pillar/transport/configfs/memory"
)

// Kernel is a configfs in memory with its trace.
type Kernel struct {
	*memory.Kernel

	// OnEffect, if set, is called before every effect with its trace line; an error stops
	// the effect and is its answer.
	OnEffect func(line string) error

	mu    sync.Mutex
	trace []string
}

// New answers a configfs with the empty trees of nvmet.
func New() *Kernel {
	k := &Kernel{}
	k.Kernel = memory.New(k.effect)
	return k
}

// effect lets the test interfere and records the line.
func (k *Kernel) effect(line string) error {
	if k.OnEffect != nil {
		if err := k.OnEffect(line); err != nil {
			return err
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.trace = append(k.trace, line)
	return nil
}

// Trace answers the effects so far, one line each, in the order the kernel saw them, and
// forgets them.
func (k *Kernel) Trace() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	t := k.trace
	k.trace = nil
	return t
}
