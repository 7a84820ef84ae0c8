package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/pillar-csi/pillar/fencing"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/transport"
)

// fresh is the volume that comes and goes.
const (
	fresh      = "pvc-fresh"
	freshBytes = 64 * mebi
	growth     = 4 * mebi
)

var (
	freshID     = storage.VolumeID{Pool: group, Name: fresh}
	freshDevice = "/dev/" + group + "/" + fresh
)

// createRow compares a claim's way through the agent, create and export, with the programs it
// ran and what it writes to the device and to configfs, done again by hand.
func (n *node) createRow() row {
	var ran []program
	lifecycle := 0
	return row{
		name: "agent_create_export_vs_same_programs", goal: 1.15, rounds: 7, marks: 2,
		work: func(ctx context.Context) (took time.Duration, err error) {
			lifecycle++ // one that has ended takes no more tokens
			tok := fencing.Token{UID: fmt.Sprintf("%s-%d", owner, lifecycle), Generation: 1}
			n.programs.take()
			begun := time.Now()
			s := spec(fresh, freshBytes)
			_, err = n.CreateVolume(ctx, tok, s)
			if err == nil {
				_, err = n.ExportVolume(ctx, next(&tok), storage.LVMLV, export(fresh))
			}
			took = time.Since(begun)
			ran, _ = n.programs.take()
			return took, errors.Join(err, n.remove(ctx, next(&tok)))
		},
		baseline: func(ctx context.Context) (took time.Duration, err error) {
			begun := time.Now()
			err = replay(ctx, ran, func(argv []string) error {
				if argv[0] == "lvchange" { // the tag comes off when the ends are blank
					return wipe(freshDevice, freshBytes)
				}
				return nil
			})
			r := &raw{}
			r.listen()
			r.prepare(fresh, freshDevice)
			r.link(fresh)
			took = time.Since(begun)
			err = errors.Join(err, r.err(), clear())
			_, e := programs.Run(ctx, "lvremove", "-y", group+"/"+fresh)
			return took, errors.Join(err, e)
		},
		programs: func() (int, time.Duration) { return len(ran), 0 },
	}
}

func next(tok *fencing.Token) fencing.Token {
	tok.Generation++
	return *tok
}

func (n *node) remove(ctx context.Context, tok fencing.Token) error {
	return errors.Join(n.UnexportVolume(ctx, tok, storage.LVMLV, transport.NVMeTCP, freshID),
		n.DeleteVolume(ctx, tok, storage.LVMLV, freshID), clear())
}

// expandRow compares growing an exported volume with the programs that ran for it, and the
// write that has the kernel look at its size. The volume grows with every call on either side.
func (n *node) expandRow(ctx context.Context) (row, error) {
	tok, size := fencing.Token{UID: owner, Generation: 1}, int64(freshBytes)
	_, err := n.CreateVolume(ctx, tok, spec(fresh, size))
	if err == nil {
		_, err = n.ExportVolume(ctx, next(&tok), storage.LVMLV, export(fresh))
	}
	var ran []program
	return row{
		name: "agent_expand_vs_same_programs", goal: 1.15, rounds: 7, marks: 1,
		work: func(ctx context.Context) (time.Duration, error) {
			size += growth
			n.programs.take()
			begun := time.Now()
			_, err := n.ExpandVolume(ctx, next(&tok), storage.LVMLV, transport.NVMeTCP, freshID, size)
			took := time.Since(begun)
			ran, _ = n.programs.take()
			return took, err
		},
		baseline: func(ctx context.Context) (time.Duration, error) {
			size += growth
			r := &raw{}
			begun := time.Now()
			err := replay(ctx, sized(ran, size), func([]string) error { return nil })
			r.set(nvmetDir+"/subsystems/nqn.2026-01.com.bhyoo.pillar-csi:"+group+"."+fresh+"/namespaces/1/revalidate_size", "1")
			return time.Since(begun), errors.Join(err, r.err())
		},
		programs: func() (int, time.Duration) { return len(ran), 0 },
		end:      func(ctx context.Context) error { return n.remove(ctx, next(&tok)) },
	}, err
}

// wipe zeroes both ends of a device and reads them, as the agent does.
func wipe(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	zero, got := make([]byte, mebi), make([]byte, mebi)
	ends := []int64{0, size - mebi}
	for _, at := range ends {
		_, e := f.WriteAt(zero, at)
		err = errors.Join(err, e)
	}
	err = errors.Join(err, f.Sync())
	for _, at := range ends {
		_, e := f.ReadAt(got, at)
		err = errors.Join(err, e)
		if !bytes.Equal(got, zero) {
			err = errors.Join(err, fmt.Errorf("byte %d of %s is not zero", at, path))
		}
	}
	return err
}
