//go:build lab

package outage

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/pillar-csi/pillar/roles/agent"
	"github.com/pillar-csi/pillar/roles/telemetry"
	"github.com/pillar-csi/pillar/storage/mount"
	"github.com/pillar-csi/pillar/transport"
	"github.com/pillar-csi/pillar/transport/nvmf"
)

// roleEnv makes the test binary one of the programs in the guests.
const roleEnv = "PILLAR_OUTAGE_ROLE"

func TestMain(m *testing.M) {
	roles := map[string]func(context.Context) error{"agent": serve, "attach": attach, "detach": detach, "scribe": scribe, "read": read}
	role, ok := roles[os.Getenv(roleEnv)]
	if !ok {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := role(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

const stateDir = "/var/lib/pillar-csi/agent"

// serve is the agent.
func serve(ctx context.Context) error {
	log, err := telemetry.NewLogger("info")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(stateDir, 0o700); err != nil {
		return err
	}
	config := "/run/agent.yaml"
	if err := os.WriteFile(config, []byte("backends: [{lvm: {volumeGroup: "+group+"}}]"), 0o600); err != nil {
		return err
	}
	return agent.Run(ctx, agent.Config{File: config, Listen: ":9500", StateDir: stateDir}, log)
}

func newHost() *nvmf.Host { return nvmf.New("", nvmf.Config{HostNQN: hostNQN, HostID: hostID}) }

// attach connects the worker and prints the device.
func attach(ctx context.Context) error {
	dev, err := newHost().Attach(ctx, nvmf.Target{NQN: nqn, Portal: portal, CtrlLossTmo: new(600), ReconnectDelay: new(1)})
	if err == nil {
		_, err = fmt.Println(dev.Path)
	}
	return err
}

func detach(ctx context.Context) error { return newHost().Detach(ctx, nqn, transport.Portal{}) }

// Where the scribe writes, and where it notes what it was told is on disk.
const (
	dataDir      = "/mnt"
	acknowledged = "/run/acknowledged"
)

// scribe writes one record after the other, each with fsync, half of them as a file of
// their own, until it is told to end.
func scribe(ctx context.Context) error {
	f, err := os.OpenFile(filepath.Join(dataDir, "journal"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	for n := uint64(1); ctx.Err() == nil; n++ {
		if _, err := f.WriteAt(record(n), int64(n-1)*recordSize); err != nil {
			return err
		}
		if err := f.Sync(); err != nil {
			return err
		}
		if n%2 == 0 {
			if err := writeFile(n); err != nil {
				return err
			}
		}
		note := fmt.Appendf(nil, "%d\n", n)
		if err := errors.Join(os.WriteFile(acknowledged+".new", note, 0o600), os.Rename(acknowledged+".new", acknowledged)); err != nil {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
	return nil
}

const recordSize = 512

// record is the n-th: its number over and over.
func record(n uint64) []byte {
	return bytes.Repeat(binary.BigEndian.AppendUint64(nil, n), recordSize/8)
}

func fileOf(n uint64) string { return filepath.Join(dataDir, fmt.Sprintf("%08d", n)) }

// writeFile makes the record's file last: its content, then its name.
func writeFile(n uint64) error {
	f, err := os.Create(fileOf(n))
	if err != nil {
		return err
	}
	_, err = f.Write(record(n))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	dir, err := os.Open(dataDir)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// read mounts the volume on the storage node and prints every record that is not as it was
// acknowledged, up to the one that PILLAR_OUTAGE_LAST names.
func read(context.Context) error {
	var last uint64
	if _, err := fmt.Sscan(os.Getenv("PILLAR_OUTAGE_LAST"), &last); err != nil {
		return err
	}
	if err := mount.Mount("/dev/"+volume.String(), dataDir, "ext4", []string{"ro", "noload"}); err != nil {
		return err
	}
	defer mount.Unmount(dataDir)
	journal, err := os.Open(filepath.Join(dataDir, "journal"))
	if err != nil {
		return err
	}
	defer journal.Close()
	for n := uint64(1); n <= last; n++ {
		got := make([]byte, recordSize)
		if _, err := io.ReadFull(journal, got); err != nil || !bytes.Equal(got, record(n)) {
			fmt.Println("journal", n, err)
		}
		if n%2 != 0 {
			continue
		}
		if got, err := os.ReadFile(fileOf(n)); err != nil || !bytes.Equal(got, record(n)) {
			fmt.Println("file", n, err)
		}
	}
	return nil
}
