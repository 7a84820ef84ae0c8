package webhook

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// apiserver is the real kube-apiserver all tests of the package share.
var apiserver struct {
	once sync.Once
	env  *envtest.Environment
	cfg  *rest.Config
	err  error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if apiserver.env != nil {
		if err := apiserver.env.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stop kube-apiserver:", err)
		}
	}
	os.Exit(code)
}

// needAPIServer answers the configuration of a real kube-apiserver with our CRDs. Without
// binaries the test skips on a laptop and fails in the lab.
func needAPIServer(t *testing.T) *rest.Config {
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
	apiserver.once.Do(func() {
		apiserver.env = &envtest.Environment{
			BinaryAssetsDirectory: dir,
			CRDDirectoryPaths:     []string{filepath.Join("..", "..", "..", "crds", "manifests")},
			ErrorIfCRDPathMissing: true,
		}
		apiserver.cfg, apiserver.err = apiserver.env.Start()
		if apiserver.err == nil {
			apiserver.cfg.QPS, apiserver.cfg.Burst = -1, 0
		}
	})
	if apiserver.err != nil {
		t.Fatal(apiserver.err)
	}
	return apiserver.cfg
}
