package image

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// program is the least that debug/elf takes for a program: the header alone.
var program = "\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9) + "\x02\x00\x3e\x00\x01" + strings.Repeat("\x00", 43)

// tree makes a package tree in which every program and configuration file exists, and
// answers it with the paths of its only package.
func tree(t *testing.T) (root string, paths []string) {
	t.Helper()
	root = t.TempDir()
	write := func(p, data string) {
		t.Helper()
		at := filepath.Join(root, merged(p))
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(data), 0o755); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, p)
	}
	for _, name := range slices.Concat(Programs, called, leftOut) {
		write("/sbin/"+name, program)
	}
	for _, p := range configuration {
		write(p, "")
	}
	write("/sbin/fsadm", "#!/bin/bash\nexec lvm\n")
	write("/usr/share/doc/lvm2/copyright", "")
	if err := os.Symlink("lvs", filepath.Join(root, "usr/sbin/link")); err != nil {
		t.Fatal(err)
	}
	return root, append(paths, "/sbin/link")
}

func TestFiles(t *testing.T) {
	root, paths := tree(t)
	files, err := Files(root, func(string) ([]string, error) { return paths, nil })
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range files {
		got = append(got, f.Path)
	}
	want := []string{"/bin", "/sbin", "/lib", "/lib64", "/run/lock/lvm", "/proc", "/sys", "/dev", "/tmp",
		"/etc/lvm/lvm.conf", "/etc/mtab", "/usr/sbin/link"}
	for _, name := range slices.Concat(Programs, called) {
		want = append(want, "/usr/sbin/"+name)
	}
	want = append(want, configuration...)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files of the image (-want +got):\n%s", diff)
	}
}

func TestFiles_missing(t *testing.T) {
	for _, lost := range []string{"/sbin/mkfs.xfs", "/sbin/thin_check", "/usr/share/xfsprogs/mkfs/lts_5.15.conf"} {
		t.Run(lost, func(t *testing.T) {
			root, paths := tree(t)
			paths = slices.DeleteFunc(paths, func(p string) bool { return p == lost })
			_, err := Files(root, func(string) ([]string, error) { return paths, nil })
			if err == nil || !strings.Contains(err.Error(), filepath.Base(lost)) {
				t.Errorf("Files() = %v, want an error that names %s", err, lost)
			}
		})
	}
}

// computed are the program names that are no literals where they are run.
var computed = map[string][]string{
	`"mkfs." + want.Type`: {"mkfs.ext4", "mkfs.xfs"},
	`repair[0]`:           {"vgmknodes", "lvchange"},
	`tool`:                nil, // lvm.Group's lvm and zfs.Pool's tool, whose callers name it
	`name`:                nil, // host.Few's Run, a Runner whose callers name it
}

// TestPrograms holds Programs to the calls of host.Runner in the product's source: methods
// Run of something named run or Run, lvm.Group's lvm and zfs.Pool's tool. The second
// argument is the name.
func TestPrograms(t *testing.T) {
	got := map[string]bool{}
	for _, dir := range []string{"storage", "transport", "fencing", "roles"} {
		for _, call := range runs(t, filepath.Join("../..", dir)) {
			names, ok := computed[types.ExprString(call)]
			if lit, literal := call.(*ast.BasicLit); literal {
				name, err := strconv.Unquote(lit.Value)
				names, ok = []string{name}, err == nil
			}
			if !ok {
				t.Errorf("a program named %s is run: say in this test which those are", types.ExprString(call))
			}
			for _, name := range names {
				got[name] = true
			}
		}
	}
	want := map[string]bool{}
	for _, name := range Programs {
		want[name] = true
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("programs of the image and those the source runs (-image +source):\n%s", diff)
	}
}

// runs finds the name argument of every program run below dir.
func runs(t *testing.T, dir string) (names []ast.Expr) {
	t.Helper()
	err := filepath.WalkDir(dir, func(p string, entry fs.DirEntry, err error) error {
		if entry != nil && entry.Name() == "dryrun" {
			return filepath.SkipDir // it stands in for the programs of the backends and starts none
		}
		if err != nil || entry.IsDir() || !strings.HasSuffix(p, ".go") || strings.HasSuffix(p, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && len(call.Args) > 1 && runner(call.Fun) {
				names = append(names, call.Args[1])
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func runner(fun ast.Expr) bool {
	method, ok := fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	of := types.ExprString(method.X)
	of = of[strings.LastIndex(of, ".")+1:]
	switch method.Sel.Name {
	case "lvm", "tool":
		return true
	}
	return method.Sel.Name == "Run" && strings.EqualFold(of, "run")
}
