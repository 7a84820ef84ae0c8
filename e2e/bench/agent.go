package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/pillar-csi/pillar/fencing"
	"github.com/pillar-csi/pillar/roles/agent"
	"github.com/pillar-csi/pillar/roles/agentrpc"
	"github.com/pillar-csi/pillar/roles/telemetry"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/host"
	"github.com/pillar-csi/pillar/storage/host/durable"
	"github.com/pillar-csi/pillar/transport"
)

// node is a storage node: the real agent behind its gRPC server, a volume group on a spare
// disk and, on another, the filesystem of the agent's marks, so that their fsync costs what
// it costs on a disk.
type node struct {
	*agentrpc.Client
	programs *recorder
	state    string
	stop     func() error
}

const (
	group   = "bench"
	listen  = "127.0.0.1:19500"
	owner   = "0b1e0c62-3a5e-4f62-9d0a-3f1f0f8c1a01"
	hostNQN = "nqn.2014-08.org.nvmexpress:uuid:11111111-1111-4111-8111-111111111111"
	mebi    = 1 << 20
)

// startNode makes group and filesystem and starts the agent, whose gate it opens.
func startNode(ctx context.Context, disk, stateDisk string) (*node, error) {
	n := &node{state: "/var/lib/pillar-bench", programs: &recorder{}}
	for _, argv := range [][]string{
		{"vgcreate", "-y", "--physicalextentsize", "1m", group, disk},
		{"mkfs.ext4", "-q", "-F", stateDisk},
		{"mkdir", "-p", n.state},
		{"mount", stateDisk, n.state},
	} {
		if _, err := programs.Run(ctx, argv[0], argv[1:]...); err != nil {
			return nil, err
		}
	}
	config := filepath.Join(n.state, "agent.yaml")
	if err := os.WriteFile(config, []byte("backends: [{lvm: {volumeGroup: "+group+"}}]"), 0o600); err != nil {
		return nil, err
	}
	log, err := telemetry.NewLogger("error")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		done <- agent.Run(ctx, agent.Config{File: config, Listen: listen, StateDir: filepath.Join(n.state, "agent"), Run: n.programs}, log)
	}()
	n.stop = func() error {
		n.Client.Close()
		cancel()
		return <-done
	}
	if n.Client, err = agentrpc.Dial(listen, agentrpc.Config{}); err != nil {
		return nil, err
	}
	return n, n.open(ctx)
}

// open sends an empty complete request until the agent answers.
func (n *node) open(ctx context.Context) error {
	for {
		_, err := n.Reconcile(ctx, true, nil)
		if !errors.Is(err, agentrpc.ErrUnavailable) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func volume(i int) string     { return fmt.Sprintf("pvc-%03d", i) }
func devicePath(i int) string { return "/dev/" + group + "/" + volume(i) }

func token(generation int64) fencing.Token { return fencing.Token{UID: owner, Generation: generation} }

// export is what a claim of one node gets.
func export(name string) transport.Export {
	return transport.Export{
		Kind: transport.NVMeTCP, Volume: group + "/" + name, Portal: transport.Portal{Address: "127.0.0.1", Port: 4420},
		ACL: true, Initiators: []string{hostNQN},
	}
}

// clear takes every export away, whoever made it, and the links first.
func clear() error {
	const root = "/sys/kernel/config/nvmet/"
	var failed error
	for _, pattern := range []string{"ports/*/subsystems/*", "subsystems/*/allowed_hosts/*", "subsystems/*/namespaces/*", "subsystems/*", "ports/*", "hosts/*"} {
		paths, err := filepath.Glob(root + pattern)
		failed = errors.Join(failed, err)
		for _, path := range paths {
			failed = errors.Join(failed, os.Remove(path))
		}
	}
	return failed
}

// programs runs what the benchmark itself needs.
var programs = host.Exec{Env: []string{"DM_DISABLE_UDEV=1"}}

// markCost makes something of a mark's size durable beside the marks.
func (n *node) markCost(context.Context) (time.Duration, error) {
	begun := time.Now()
	err := durable.Write(filepath.Join(n.state, "mark"), make([]byte, 200), 0o600)
	return time.Since(begun), err
}

func spec(name string, bytes int64) storage.Spec {
	return storage.Spec{
		ID: storage.VolumeID{Pool: group, Name: name}, Owner: owner, Bytes: bytes, Backend: storage.LVMLV,
		LVM: &storage.LVMParams{VolumeGroup: group, Mode: "linear"},
	}
}
