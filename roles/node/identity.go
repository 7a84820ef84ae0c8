package node

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/google/uuid"

	"github.com/pillar-csi/pillar/storage/host"
	"github.com/pillar-csi/pillar/storage/host/durable"
	"github.com/pillar-csi/pillar/transport"
)

// nvmeIdentity is who this host is to NVMe targets. The kernel refuses a known host NQN
// that comes with another host ID, so the files are made once and never again.
type nvmeIdentity struct {
	HostNQN, HostID string
}

// readNVMe reads /etc/nvme/hostnqn and /etc/nvme/hostid, and makes what is missing or
// empty, both from one UUID if both are. A malformed file is an error and stays.
func readNVMe(root host.Root) (nvmeIdentity, error) {
	fresh, err := uuid.NewRandom()
	if err != nil {
		return nvmeIdentity{}, fmt.Errorf("make NVMe host identity: %w", err)
	}
	var id nvmeIdentity
	files := []struct {
		path, fresh string
		to          *string
		check       func(string) error
	}{
		{root.Path("etc/nvme/hostnqn"), "nqn.2014-08.org.nvmexpress:uuid:" + fresh.String(), &id.HostNQN,
			func(s string) error { _, err := transport.ParseNQN(s); return err }},
		{root.Path("etc/nvme/hostid"), fresh.String(), &id.HostID,
			func(s string) error { return uuid.Validate(s) }},
	}
	for _, f := range files {
		if *f.to, err = readOrMake(f.path, f.fresh); err == nil {
			err = f.check(*f.to)
		}
		if err != nil {
			return nvmeIdentity{}, fmt.Errorf("NVMe host identity %s: %w", f.path, err)
		}
	}
	return id, nil
}

// readOrMake answers the trimmed content of a one-line file, after writing fresh to it if
// there is none.
func readOrMake(path, fresh string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if text := strings.TrimSpace(string(data)); text != "" {
		return text, nil
	}
	return fresh, writeIdentity(path, fresh+"\n")
}

func writeIdentity(path, content string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return durable.Write(path, []byte(content), 0o644)
}

// iqnForm is the three name types of RFC 7143 4.2.7; names are at most 223 bytes.
var iqnForm = regexp.MustCompile(`^(iqn\.[0-9]{4}-[0-9]{2}\.[a-z0-9.-]+(:[a-z0-9.:-]+)?|eui\.[0-9a-f]{16}|naa\.[0-9a-f]{16}([0-9a-f]{16})?)$`)

// readIQN reads InitiatorName= from /etc/iscsi/initiatorname.iscsi, and adds the line if it
// is missing. A malformed name is an error that names the file, and stays.
func readIQN(root host.Root) (string, error) {
	path := root.Path("etc/iscsi/initiatorname.iscsi")
	name, err := iqn(path)
	if err != nil {
		return "", fmt.Errorf("read iSCSI initiator IQN from %s: %w", path, err)
	}
	return name, nil
}

func iqn(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	for line := range strings.Lines(string(data)) {
		name, ok := strings.CutPrefix(strings.TrimSpace(line), "InitiatorName=")
		if !ok {
			continue
		}
		if name = strings.TrimSpace(name); len(name) > 223 || !iqnForm.MatchString(name) {
			return "", fmt.Errorf("%q is not an initiator name", name)
		}
		return name, nil
	}
	var random [16]byte
	if _, err := rand.Read(random[:]); err != nil {
		return "", err
	}
	name := "iqn.2026-01.com.bhyoo.pillar-csi:node." + hex.EncodeToString(random[:])
	content := string(data)
	if content != "" && !strings.HasSuffix(content, "\n") {
		content += "\n"
	}
	return name, writeIdentity(path, content+"InitiatorName="+name+"\n")
}
