package controller

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"go.uber.org/zap"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pillar-csi/pillar/roles/controller/agents"
)

// A crash test runs this very test binary again as a controller: one that only serves CSI on
// the socket in childSocket, or one that only reaps the volume in childReap and ends.
const (
	childSocket     = "PILLAR_CHILD_SOCKET"
	childReap       = "PILLAR_CHILD_REAP"
	childKubeconfig = "PILLAR_CHILD_KUBECONFIG"
)

func isChild() bool { return os.Getenv(childSocket)+os.Getenv(childReap) != "" }

func runChild() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := child(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func child(ctx context.Context) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", os.Getenv(childKubeconfig))
	if err != nil {
		return err
	}
	cfg.QPS = -1 // no client-side pauses
	scheme, err := Scheme()
	if err != nil {
		return err
	}
	api, err := client.New(WithCrashpoints(cfg), client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	s := NewServer(api, "default", &agents.Pool{}, func(string) {}, zap.NewNop())
	volume := os.Getenv(childReap)
	if volume == "" {
		return s.Serve(ctx, os.Getenv(childSocket))
	}
	_, err = lateReaper(api, s).Look(ctx, volume)
	return err
}
