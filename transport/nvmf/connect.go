package nvmf

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"regexp"
	"strings"

	"github.com/pillar-csi/pillar/storage/host/crashpoint"
	"github.com/pillar-csi/pillar/transport"
	"golang.org/x/sys/unix"
)

// hostIDForm is a UUID, the only form of host ID the kernel parses.
var hostIDForm = regexp.MustCompile(`^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$`)

// options is the one line that /dev/nvme-fabrics takes (opt_tokens of
// drivers/nvme/host/fabrics.c). Values cannot hold a comma: each passed a parser.
func options(t Target, cfg Config) (string, error) {
	for _, nqn := range []string{t.NQN, cfg.HostNQN} {
		if _, err := transport.ParseNQN(nqn); err != nil {
			return "", err
		}
	}
	if !hostIDForm.MatchString(cfg.HostID) {
		return "", fmt.Errorf("%w: host ID %q is not a UUID", transport.ErrInvalid, cfg.HostID)
	}
	addr, err := netip.ParseAddr(t.Portal.Address)
	if err != nil || t.Portal.Port == 0 {
		return "", fmt.Errorf("%w: portal %s", transport.ErrInvalid, t.Portal)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "transport=tcp,traddr=%s,trsvcid=%d,nqn=%s,hostnqn=%s,hostid=%s",
		addr, t.Portal.Port, t.NQN, cfg.HostNQN, cfg.HostID)
	for _, o := range []struct {
		name  string
		value *int
	}{{"queue_size", t.QueueSize}, {"ctrl_loss_tmo", t.CtrlLossTmo}, {"reconnect_delay", t.ReconnectDelay}} {
		if o.value != nil {
			fmt.Fprintf(&b, ",%s=%d", o.name, *o.value)
		}
	}
	if t.HdrDigest {
		b.WriteString(",hdr_digest")
	}
	if t.DataDigest {
		b.WriteString(",data_digest")
	}
	return b.String(), nil
}

// fabrics connects: exactly one write, then a read on the same descriptor. It does not go
// through os.File, which would repeat an interrupted write, and that is a second connect.
// The write returns when the controller is live or refused.
func (h *Host) fabrics(options string) error {
	path := h.root.Path("dev/nvme-fabrics")
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: no %s: load the modules nvme_fabrics and nvme_tcp", transport.ErrPrecondition, path)
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	defer unix.Close(fd)
	crashpoint.Before(crashpoint.Kernel, "connect "+options)
	_, err = unix.Write(fd, []byte(options))
	crashpoint.After(crashpoint.Kernel, "connect "+options)
	if err != nil {
		return explain(err)
	}
	reply := make([]byte, 4096)
	n, err := unix.Read(fd, reply)
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	_, err = parseReply(string(reply[:n]))
	return err
}

// parseReply reads "instance=0,cntlid=1" and answers the instance: the controller is
// nvme<instance>. Before a connect, and after a failed one, it is -1.
func parseReply(s string) (int, error) {
	var instance, cntlid int
	if _, err := fmt.Sscanf(s, "instance=%d,cntlid=%d", &instance, &cntlid); err != nil || instance < 0 {
		return 0, fmt.Errorf("nvme-fabrics answered %q", strings.TrimSpace(s))
	}
	return instance, nil
}

// explain says in words what the kernel's errno of a refused connect means. The facts are
// from nvmf_connect_command_prep's callers and from trying.
func explain(err error) error {
	why := map[error]string{
		unix.EIO:          "the subsystem does not exist there or does not admit this host NQN",
		unix.ECONNREFUSED: "nobody listens at the portal",
		unix.EINVAL:       "the kernel refuses an option, or this host NQN is in use with another host ID",
		unix.EALREADY:     "a controller for this host, subsystem and portal exists",
	}
	for errno, text := range why {
		if errors.Is(err, errno) {
			return fmt.Errorf("%w: %s", err, text)
		}
	}
	return err
}
