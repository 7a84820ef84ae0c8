// Package apiservertest runs the real kube-apiserver built for the lab under the tests of
// a package: what depends on API-server behaviour is not tried on a fake.
//
//	func TestMain(m *testing.M) { os.Exit(apiservertest.Main(m)) }
package apiservertest

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

var server struct {
	once sync.Once
	env  *envtest.Environment
	cfg  *rest.Config
	err  error
}

// Main runs the tests and then stops the server, if one of them needed it.
func Main(m *testing.M) int {
	code := m.Run()
	if server.env != nil {
		if err := server.env.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stop kube-apiserver:", err)
		}
	}
	return code
}

// Config answers the configuration of a server with our CRDs, which all tests of the
// package share. Without binaries the test skips on a laptop and fails in the lab.
func Config(t testing.TB) *rest.Config {
	t.Helper()
	dir := os.Getenv("PILLAR_TEST_ASSETS")
	if dir == "" {
		dir = os.Getenv("KUBEBUILDER_ASSETS")
	}
	for _, binary := range []string{"kube-apiserver", "etcd"} {
		if _, err := os.Stat(filepath.Join(dir, binary)); dir == "" || err != nil {
			if os.Getenv("PILLAR_LAB") == "1" {
				t.Fatalf("the lab has no %s: set PILLAR_TEST_ASSETS to its directory", binary)
			}
			t.Skipf("needs %s in the directory PILLAR_TEST_ASSETS names", binary)
		}
	}
	server.once.Do(func() { start(dir) })
	if server.err != nil {
		t.Fatalf("start kube-apiserver: %v", server.err)
	}
	return rest.CopyConfig(server.cfg)
}

// Kubeconfig answers a file's content with which another process reaches the server of
// Config as an administrator.
func Kubeconfig(t testing.TB, name string) []byte {
	t.Helper()
	Config(t)
	user, err := server.env.AddUser(envtest.User{Name: name, Groups: []string{"system:masters"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := user.KubeConfig()
	if err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}

func start(dir string) {
	root, err := repository()
	if err != nil {
		server.err = err
		return
	}
	server.env = &envtest.Environment{
		BinaryAssetsDirectory: dir,
		CRDDirectoryPaths:     []string{filepath.Join(root, "crds", "manifests")},
		ErrorIfCRDPathMissing: true,
	}
	if server.cfg, server.err = server.env.Start(); server.err == nil {
		server.cfg.QPS, server.cfg.Burst = -1, 0
	}
}

// repository is the directory of go.mod above the test.
func repository() (string, error) {
	dir, err := os.Getwd()
	for ; err == nil && dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("no go.mod above %s: %w", dir, err)
}
