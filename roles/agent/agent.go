package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/pillar-csi/pillar/roles/agentpb"
	"github.com/pillar-csi/pillar/roles/agentrpc"
	"github.com/pillar-csi/pillar/roles/telemetry"
	"github.com/pillar-csi/pillar/storage/host"
)

// Config of an agent process.
type Config struct {
	File     string        // --config
	Listen   string        // --listen
	StateDir string        // --state-dir
	Pause    time.Duration // on SIGTERM, between NOT_SERVING and the drain
	Root     host.Root
	Run      host.Runner // nil: the host's programs

	// Simulate, if not 0, serves pools in memory of as many bytes each, instead of the host's.
	Simulate int64
}

// stopPause lets callers that still saw SERVING finish what they began (block.md B-281).
// kubelet has no shell to sleep with, so the process does it.
const stopPause = 5 * time.Second

// drainWait bounds the wait for calls in flight: kubelet kills the pod 60 s after SIGTERM.
const drainWait = 45 * time.Second

// streamWait is how long an idle stream (a health watch) may hold up the end.
const streamWait = time.Second

// Command is `pillar agent`.
func Command() *cobra.Command {
	cfg := Config{Pause: stopPause}
	var dry dryFlags
	var level string
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Serve this storage node's volumes and exports",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return &exitError{2, fmt.Errorf("%q: pillar agent takes flags only", args[0])}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cfg.check(); err != nil {
				return &exitError{2, err}
			}
			log, err := telemetry.NewLogger(level)
			if err != nil {
				return err
			}
			if cfg.Simulate, err = dry.check(); err != nil {
				return err
			}
			if dry.run && !dry.serve {
				return dry.print(cmd.Context(), cfg, cmd.OutOrStdout())
			}
			return Run(cmd.Context(), cfg, log)
		},
	}
	cmd.Flags().StringVar(&cfg.File, "config", "", "file that names the pools to serve (required)")
	cmd.Flags().StringVar(&cfg.Listen, "listen", ":9500", "address of the gRPC server")
	cmd.Flags().StringVar(&cfg.StateDir, "state-dir", "/var/lib/pillar-csi/agent", "fencing marks and pinned identities, on the node's own disk")
	cmd.Flags().StringVar(&level, "zap-log-level", "info", "debug, info, warn or error")
	dry.register(cmd)
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &exitError{2, err} })
	return cmd
}

// check refuses flags with which no agent could serve anywhere. A relative state directory is
// one: the next start may come from elsewhere, and find no fencing marks.
func (c Config) check() error {
	if c.File == "" {
		return errors.New("--config: required, set it to the file that names the pools")
	}
	if !filepath.IsAbs(c.StateDir) {
		return fmt.Errorf("--state-dir: %q is no absolute path", c.StateDir)
	}
	if _, err := net.ResolveTCPAddr("tcp", c.Listen); err != nil {
		return fmt.Errorf("--listen: %w, write it like :9500", err)
	}
	return nil
}

// Run serves until ctx ends, then drains and stops. A second agent on the same state
// directory, or a configuration that is not exactly right, is refused before anything else.
func Run(ctx context.Context, cfg Config, log *zap.Logger) error {
	f, err := readFile(cfg.File)
	if err != nil {
		return err
	}
	st, err := openState(cfg.StateDir)
	if err != nil {
		return err
	}
	defer st.close()
	if err := st.of(cfg.Simulate > 0); err != nil {
		return err
	}
	n, err := openNode(cfg, f, log)
	if err != nil {
		return err
	}
	defer n.close()
	s, err := n.server(f, st, log)
	if err != nil {
		return err
	}
	flushed, err := st.takeFlushed()
	if err != nil {
		return err
	}
	if err := s.configfs(); err != nil {
		log.Warn("configfs not mounted", zap.Error(err)) // health and every export say so too
	}
	listener, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	log.Info("serving", zap.String("address", listener.Addr().String()), zap.Bool("flushed", flushed), zap.String("version", s.version))
	log.Warn("agent connections are plaintext")
	return s.serve(ctx, listener, cfg.Pause)
}

// serve answers calls until ctx ends. Then: NOT_SERVING, a pause, drain, stop.
func (s *server) serve(ctx context.Context, listener net.Listener, pause time.Duration) error {
	g := grpc.NewServer(append(agentrpc.ServerOptions(), grpc.UnaryInterceptor(s.intercept))...)
	agentpb.RegisterAgentServiceServer(g, s)
	alive := health.NewServer() // SERVING also while gated or degraded: a restart heals neither
	healthpb.RegisterHealthServer(g, alive)
	done := make(chan error, 1)
	go func() { done <- g.Serve(listener) }()
	select {
	case err := <-done:
		return fmt.Errorf("serve %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	s.stopping.Store(true)
	alive.Shutdown()
	time.Sleep(pause)
	err := s.finish(g)
	if served := <-done; !errors.Is(served, grpc.ErrServerStopped) { // a stop before the first accept
		err = errors.Join(err, served)
	}
	return err
}

// finish drains and stops; calls that do not end in time are cut off, their retry repairs.
func (s *server) finish(g *grpc.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), drainWait)
	defer cancel()
	s.calls.drain()
	if err := s.flush(ctx); err != nil {
		g.Stop()
		return err
	}
	late := time.AfterFunc(streamWait, g.Stop)
	defer late.Stop()
	g.GracefulStop()
	s.log.Info("stopped")
	return nil
}
