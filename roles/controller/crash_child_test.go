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

// A crash test runs this very test binary again as a controller that only serves CSI: a
// socket in childSocket makes it one.
const (
	childSocket     = "PILLAR_CHILD_SOCKET"
	childKubeconfig = "PILLAR_CHILD_KUBECONFIG"
)

func serveChild() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := serveOnly(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func serveOnly(ctx context.Context) error {
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
	return NewServer(api, "default", &agents.Pool{}, func(string) {}, zap.NewNop()).Serve(ctx, os.Getenv(childSocket))
}
