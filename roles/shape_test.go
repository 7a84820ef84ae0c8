package roles

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// The ceilings. Functions aim for half of theirs; no comment raises one.
const (
	maxFunction = 80  // lines, from func to the closing brace, tests included
	maxFile     = 500 // lines
)

// file is one parsed source file, relative to the repository.
type file struct {
	path string
	ast  *ast.File
	set  *token.FileSet
}

func (f file) line(p token.Pos) int { return f.set.Position(p).Line }

func (f file) test() bool { return strings.HasSuffix(f.path, "_test.go") }

// sources parses every file of the repository that a person wrote.
func sources(t *testing.T) (files []file) {
	t.Helper()
	set := token.NewFileSet()
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "testdata" || entry.Name() == ".git" || entry.Name() == "tools"):
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, ".go"):
			return nil
		}
		parsed, err := parser.ParseFile(set, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		if !ast.IsGenerated(parsed) {
			files = append(files, file{path: strings.TrimPrefix(path, "../"), ast: parsed, set: set})
		}
		return nil
	})
	if err != nil {
		t.Fatalf("parse the repository: %v", err)
	}
	return files
}

func TestShape_Size(t *testing.T) {
	for _, f := range sources(t) {
		if n := f.line(f.ast.FileEnd); n > maxFile+1 {
			t.Errorf("%s has %d lines, want at most %d", f.path, n-1, maxFile)
		}
		for _, d := range f.ast.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			if n := f.line(fn.End()) - f.line(fn.Pos()) + 1; n > maxFunction {
				t.Errorf("%s:%d: %s has %d lines, want at most %d", f.path, f.line(fn.Pos()), fn.Name.Name, n, maxFunction)
			}
		}
	}
}

func TestShape_PackageDocs(t *testing.T) {
	documented := map[string]bool{}
	for _, f := range sources(t) {
		dir := filepath.Dir(f.path)
		documented[dir] = documented[dir] || f.ast.Doc != nil
	}
	for dir, ok := range documented {
		if !ok {
			t.Errorf("package in %s has no doc comment", dir)
		}
	}
}

func TestShape_ExportedDocs(t *testing.T) {
	for _, f := range sources(t) {
		if f.test() || f.ast.Name.Name == "main" {
			continue
		}
		for _, d := range f.ast.Decls {
			for _, id := range undocumented(d) {
				t.Errorf("%s:%d: exported %s has no doc comment", f.path, f.line(id.Pos()), id.Name)
			}
		}
	}
}

// wellKnown are methods whose meaning the standard library fixes.
var wellKnown = map[string]bool{"Error": true, "Unwrap": true, "Is": true, "String": true}

// undocumented answers the exported names of a declaration that nothing explains.
func undocumented(d ast.Decl) (names []*ast.Ident) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Doc == nil && d.Name.IsExported() && exportedReceiver(d.Recv) && !wellKnown[d.Name.Name] {
			names = append(names, d.Name)
		}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			names = append(names, undocumentedSpec(d, s)...)
		}
	}
	return names
}

func undocumentedSpec(d *ast.GenDecl, s ast.Spec) (names []*ast.Ident) {
	switch s := s.(type) {
	case *ast.TypeSpec:
		if s.Name.IsExported() && s.Doc == nil && s.Comment == nil && d.Doc == nil {
			names = append(names, s.Name)
		}
	case *ast.ValueSpec:
		if s.Doc != nil || s.Comment != nil || d.Doc != nil {
			return nil
		}
		for _, n := range s.Names {
			if n.IsExported() {
				names = append(names, n)
			}
		}
	}
	return names
}

// exportedReceiver is true for functions and for methods of exported types.
func exportedReceiver(recv *ast.FieldList) bool {
	if recv == nil {
		return true
	}
	t := recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	if index, ok := t.(*ast.IndexExpr); ok {
		t = index.X
	}
	id, ok := t.(*ast.Ident)
	return ok && id.IsExported()
}

// TestShape_Configfs holds the promise that only transport/configfs writes below configfs:
// nobody else names a path there, its mount point aside.
func TestShape_Configfs(t *testing.T) {
	for _, f := range sources(t) {
		if f.test() || part(f.path) == "e2e" || filepath.Dir(f.path) == "transport/configfs" {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			if s, err := strconv.Unquote(lit.Value); err == nil && strings.Contains(s, "kernel/config") && s != "/sys/kernel/config" {
				t.Errorf("%s:%d: names configfs; only transport/configfs may", f.path, f.line(lit.Pos()))
			}
			return true
		})
	}
}
