// Package csiserve serves a CSI plugin on a unix socket. It owns what every handler needs
// and no handler should repeat:
//
//	one lock per volume     busy is Aborted, at once or at the call's deadline
//	kinds to codes          storage.ErrNotFound -> NotFound, ... (errors.go)
//	one log line per call   "rpc failed", or "rpc done" for a change
//	the Identity service    name, version, capabilities, Probe
//
// It is, with agentrpc, the only package that knows gRPC's status and codes.
package csiserve

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

// stopWait is how long calls in flight may finish once the process has to end. kubelet
// kills a pod 30 s after SIGTERM; a call cut off here is repaired by its retry.
const stopWait = 20 * time.Second

// Config of a CSI plugin.
type Config struct {
	Address string // socket path, "unix://" in front allowed
	Name    string // the driver's name
	Version string

	// Wait makes a call on a busy volume wait until its deadline (node). Without it the
	// call is Aborted at once (controller).
	Wait bool
	// Volume names the volume of an ID as CreateVolume would, so that a create and the calls
	// on what it made exclude each other. Nil: the ID itself.
	Volume func(id string) string
	// Probe answers why the plugin is not ready, or nil. Nil is always ready.
	Probe        func(context.Context) error
	Capabilities []*csi.PluginCapability
}

// Server is the part of a plugin that stands around its handlers.
type Server struct {
	log    *zap.Logger
	locks  *locks
	volume func(id string) string
}

// Run serves the services register adds, and Identity, until ctx ends; then it lets calls
// in flight finish. A socket left behind by an earlier process is replaced.
func Run(ctx context.Context, cfg Config, log *zap.Logger, register func(grpc.ServiceRegistrar)) error {
	path := strings.TrimPrefix(cfg.Address, "unix://")
	listener, err := listen(path)
	if err != nil {
		return fmt.Errorf("serve CSI on %s: %w", path, err)
	}
	s := &Server{log: log, locks: newLocks(cfg.Wait, time.Now), volume: cfg.Volume}
	server := grpc.NewServer(grpc.UnaryInterceptor(s.intercept))
	csi.RegisterIdentityServer(server, &identity{cfg: cfg})
	register(server)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	log.Info("serving CSI", zap.String("socket", path))
	select {
	case err := <-done:
		return fmt.Errorf("serve CSI on %s: %w", path, err)
	case <-ctx.Done():
	}
	stop(server)
	<-done
	return nil
}

// listen opens the socket. Only a socket is ever removed in its place.
func listen(path string) (net.Listener, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case info.Mode().Type() != fs.ModeSocket:
		return nil, errors.New("exists and is not a socket")
	default:
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	return net.Listen("unix", path)
}

// stop ends the server: gracefully, or by cancelling what still runs after stopWait.
func stop(server *grpc.Server) {
	late := time.AfterFunc(stopWait, server.Stop)
	defer late.Stop()
	server.GracefulStop()
}
