package cluster

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// labDir makes the directory of a lab that runs as long as the test, with files below it.
func labDir(t *testing.T, cache, name string, files ...string) {
	t.Helper()
	dir := filepath.Join(cache, "run", name)
	for _, file := range append(files, "lock", "pid") {
		path := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(strconv.Itoa(os.Getpid())), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	lock, err := os.Open(filepath.Join(dir, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lock.Close() })
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
}

func TestFindCluster(t *testing.T) {
	const kubeconfig = "guests-1/host/cluster/lab-admin.kubeconfig"
	cache := t.TempDir()
	labDir(t, cache, "lab-guests", "guests-1/test/address")
	if _, _, err := findCluster(cache, ""); err == nil || !strings.Contains(err.Error(), "KEEP=1") {
		t.Errorf("findCluster() = %v without a cluster, want an error that says how to have one", err)
	}
	labDir(t, cache, "lab-one", kubeconfig)
	l, path, err := findCluster(cache, "")
	if l.Name != "lab-one" || path != filepath.Join(l.Dir, kubeconfig) || err != nil {
		t.Errorf("findCluster() = %v, %s, %v, want the only one", l, path, err)
	}
	labDir(t, cache, "lab-two", kubeconfig)
	if _, path, err = findCluster(cache, ""); path != "" || err == nil || !strings.Contains(err.Error(), "lab-two") {
		t.Errorf("findCluster() = %s, %v with two, want an error that lists them", path, err)
	}
	if l, _, err = findCluster(cache, "lab-two"); l.Name != "lab-two" || err != nil {
		t.Errorf("findCluster(lab-two) = %v, %v", l, err)
	}
}
