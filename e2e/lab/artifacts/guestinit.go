package artifacts

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

const module = "github.com/pillar-csi/pillar"

// GuestInit returns PID 1 of the guests, a static binary built from the repository that dir is
// in. It is rebuilt when a file of it changes.
func (c *Cache) GuestInit(ctx context.Context, dir string) (string, error) {
	repo, err := ModuleRoot(dir)
	if err != nil {
		return "", err
	}
	inputs := []string{runtime.Version()}
	for _, pattern := range []string{"go.mod", "e2e/lab/agent/*.go", "e2e/lab/guestinit/*.go"} {
		files, err := filepath.Glob(filepath.Join(repo, pattern))
		if err != nil {
			return "", err
		}
		for _, f := range files {
			data, err := os.ReadFile(f)
			if err != nil {
				return "", err
			}
			inputs = append(inputs, filepath.Base(f), string(data))
		}
	}
	built := *c // compiling needs no network, so it is done also where nothing may be downloaded
	built.Offline = false
	out, err := built.get(ctx, artifact{
		name: "guestinit",
		why:  "PID 1 and exec agent of the guests, from e2e/lab/guestinit",
		key:  inputs,
		make: func(ctx context.Context, b *builder) error {
			b.step("go build ./e2e/lab/guestinit")
			return b.run(ctx, repo, []string{"CGO_ENABLED=0", "GOOS=linux", "GOFLAGS="},
				"go", "build", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(b.out, "init"), "./e2e/lab/guestinit")
		},
	})
	return filepath.Join(out, "init"), err
}

// ModuleRoot returns the directory of pillar's go.mod, looking upward from dir.
func ModuleRoot(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	for at := dir; ; at = filepath.Dir(at) {
		data, err := os.ReadFile(filepath.Join(at, "go.mod"))
		if err == nil && strings.HasPrefix(string(data), "module "+module+"\n") {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("%s is not inside the repository of %s", dir, module)
		}
	}
}
