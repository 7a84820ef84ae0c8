package blkid

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

const mib = 1 << 20

// sparse is a device of zeros with a few bytes on it, as large as a test wants.
type sparse struct {
	size int64
	at   map[int64]string
	fail func(off, n int64) error // nil: every read works
}

func (s sparse) ReadAt(b []byte, off int64) (int, error) {
	n := min(int64(len(b)), max(s.size-off, 0))
	if s.fail != nil {
		if err := s.fail(off, n); err != nil {
			return 0, err
		}
	}
	clear(b)
	for at, text := range s.at {
		for i := range len(text) {
			if p := at + int64(i) - off; p >= 0 && p < n {
				b[p] = text[i]
			}
		}
	}
	if n < int64(len(b)) {
		return int(n), io.EOF
	}
	return int(n), nil
}

func TestProbe_Signatures(t *testing.T) {
	const size = 64 * mib
	gptPMBR := "\x00\x00\x02\x00\xee\xff\xff\xff\x01\x00\x00\x00\xff\xff\xff\xff"
	tests := map[string]struct {
		at   map[int64]string
		size int64
		want string
	}{
		"nothing":                  {nil, size, "blank"},
		"nothing, one sector":      {nil, 512, "blank"},
		"bytes nobody knows":       {map[int64]string{0: "hello", mib: "data", size - 9: "tail"}, size, "blank"},
		"xfs":                      {map[int64]string{0: "XFSB"}, size, "xfs"},
		"btrfs":                    {map[int64]string{65600: "_BHRfS_M"}, size, "btrfs"},
		"LVM label in sector 1":    {map[int64]string{512: "LABELONE"}, size, "LVM2_member"},
		"LVM label in sector 3":    {map[int64]string{1536: "LABELONE"}, size, "LVM2_member"},
		"LUKS":                     {map[int64]string{0: "LUKS\xba\xbe\x00\x01"}, size, "crypto_LUKS"},
		"LUKS2 second header only": {map[int64]string{0x4000: "SKUL\xba\xbe"}, size, "crypto_LUKS"},
		"md 0.90":                  {map[int64]string{size - 65536: "\xfc\x4e\x2b\xa9"}, size, "linux_raid_member"},
		"md 0.90, odd size":        {map[int64]string{size - 65536: "\xfc\x4e\x2b\xa9"}, size + 5*512, "linux_raid_member"},
		"md 1.0":                   {map[int64]string{size - 8192: "\xfc\x4e\x2b\xa9"}, size, "linux_raid_member"},
		"md 1.1":                   {map[int64]string{0: "\xfc\x4e\x2b\xa9"}, size, "linux_raid_member"},
		"md 1.2":                   {map[int64]string{4096: "\xfc\x4e\x2b\xa9"}, size, "linux_raid_member"},
		"swap, 64 KiB pages":       {map[int64]string{65526: "SWAPSPACE2"}, size, "swap"},
		"zfs, first label":         {map[int64]string{128 << 10: "\x0c\xb1\xba\x00\x00\x00\x00\x00"}, size, "zfs_member"},
		"zfs, last label only":     {map[int64]string{size - 1024: "\x00\x00\x00\x00\x00\xba\xb1\x0c"}, size, "zfs_member"},
		"bcache":                   {map[int64]string{4120: "\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81"}, size, "bcache"},
		"f2fs":                     {map[int64]string{1024: "\x10\x20\xf5\xf2"}, size, "f2fs"},
		"iso9660":                  {map[int64]string{32769: "CD001"}, size, "iso9660"},
		"squashfs":                 {map[int64]string{0: "hsqs"}, size, "squashfs"},
		"dm-integrity":             {map[int64]string{0: "integrt\x00"}, size, "DM_integrity"},
		"dm-verity":                {map[int64]string{0: "verity\x00\x00"}, size, "DM_verity_hash"},
		"ntfs":                     {map[int64]string{3: "NTFS    ", 510: "\x55\xaa"}, size, "ntfs"},
		"exfat":                    {map[int64]string{3: "EXFAT   ", 510: "\x55\xaa"}, size, "exfat"},
		"fat32":                    {map[int64]string{82: "FAT32   ", 510: "\x55\xaa"}, size, "vfat"},
		"external journal":         {map[int64]string{1080: "\x53\xef", 1024 + 0x60: "\x08"}, size, "jbd"},
		"partition table":          {map[int64]string{450: "\x83", 510: "\x55\xaa"}, size, "dos"},
		"boot code, no partition":  {map[int64]string{0: "\xeb\x63\x90", 510: "\x55\xaa"}, size, "boot sector"},
		"xfs behind boot code":     {map[int64]string{0: "XFSB", 510: "\x55\xaa"}, size, "xfs"},
		"gpt":                      {map[int64]string{446: gptPMBR, 510: "\x55\xaa", 512: "EFI PART", size - 512: "EFI PART"}, size, "gpt"},
		"gpt, 4 KiB sectors":       {map[int64]string{446: gptPMBR, 510: "\x55\xaa", 4096: "EFI PART"}, size, "gpt"},
		"gpt, only the copy":       {map[int64]string{size - 512: "EFI PART"}, size, "gpt"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Probe(sparse{size: tc.size, at: tc.at}, tc.size)
			if err != nil || got.String() != tc.want {
				t.Errorf("Probe = %v, %v, want %s", got, err, tc.want)
			}
		})
	}
}

func TestProbe_Backups(t *testing.T) {
	const size = 300 * mib
	tests := map[string]struct {
		at   map[int64]string
		want string
	}{
		"ext4 with a broken start":     {map[int64]string{4096: "gdt", 32768*4096 + 0x38: "\x53\xef"}, "ext4 (only a backup superblock)"},
		"xfs with a broken start":      {map[int64]string{512: "XAGF", size / 4: "XFSB"}, "xfs (only a backup superblock)"},
		"btrfs with a broken start":    {map[int64]string{0: "junk", 64*mib + 64: "_BHRfS_M"}, "btrfs (only a backup superblock)"},
		"LUKS2 with a broken start":    {map[int64]string{0: "junk", 0x400000: "SKUL\xba\xbe"}, "crypto_LUKS (only the second header)"},
		"space used before, now wiped": {map[int64]string{32768*4096 + 0x38: "\x53\xef"}, "blank"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Probe(sparse{size: size, at: tc.at}, size)
			if err != nil || got.String() != tc.want {
				t.Errorf("Probe = %v, %v, want %s", got, err, tc.want)
			}
		})
	}
}

func TestProbe_Unknown(t *testing.T) {
	const size = 16 * mib
	eio := errors.New("input/output error")
	covers := func(p int64) func(off, n int64) error {
		return func(off, n int64) error {
			if p >= off && p < off+n {
				return eio
			}
			return nil
		}
	}
	tests := map[string]struct {
		dev  sparse
		size int64
		want error
	}{
		"size zero":                    {sparse{size: size}, 0, nil},
		"size negative":                {sparse{size: size}, -1, nil},
		"shorter than it says":         {sparse{size: size - 512}, size, io.ErrUnexpectedEOF},
		"no byte at all":               {sparse{size: 0}, size, io.ErrUnexpectedEOF},
		"first sector unreadable":      {sparse{size: size, fail: covers(0)}, size, eio},
		"64 KiB unreadable":            {sparse{size: size, fail: covers(65536)}, size, eio},
		"end of the head unreadable":   {sparse{size: size, fail: covers(mib - 1)}, size, eio},
		"start of the tail unreadable": {sparse{size: size, fail: covers(size - mib)}, size, eio},
		"last sector unreadable":       {sparse{size: size, fail: covers(size - 1)}, size, eio},
		"a place in the middle":        {sparse{size: size, fail: covers(1 << 20)}, size, eio},
		"two things at once":           {sparse{size: size, at: map[int64]string{0: "XFSB", 4096: "\xfc\x4e\x2b\xa9"}}, size, ErrAmbiguous},
		"unreadable backup":            {sparse{size: size, at: map[int64]string{0: "junk"}, fail: covers(8193<<10 + 0x38)}, size, eio},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Probe(tc.dev, tc.size)
			if err == nil || (tc.want != nil && !errors.Is(err, tc.want)) || got.Kind != 0 {
				t.Errorf("Probe = %v, %v, want no answer and error %v", got, err, tc.want)
			}
		})
	}
}

// TestProbe_EveryReadMatters fails each single read of a probe in turn: none may end as
// an answer.
func TestProbe_EveryReadMatters(t *testing.T) {
	const size = 512 * mib
	for n := 0; ; n++ {
		reads := 0
		dev := sparse{size: size, at: map[int64]string{0: "junk"}, fail: func(off, _ int64) error {
			if reads++; reads == n+1 {
				return fmt.Errorf("read %d at %d fails", n, off)
			}
			return nil
		}}
		got, err := Probe(dev, size)
		if reads <= n {
			if n < 5 || err != nil || got.Kind != Blank {
				t.Fatalf("probe without fault after %d reads = %v, %v, want blank", n, got, err)
			}
			return
		}
		if err == nil {
			t.Errorf("Probe with failing read %d = %v, want an error", n, got)
		}
	}
}

// TestProbe_RealTools probes what the tools of this machine make.
func TestProbe_RealTools(t *testing.T) {
	tests := map[string]struct {
		argv []string
		want string
	}{
		"ext2":             {[]string{"mkfs.ext2", "-F", "-q"}, "ext2"},
		"ext3":             {[]string{"mkfs.ext3", "-F", "-q"}, "ext3"},
		"ext4":             {[]string{"mkfs.ext4", "-F", "-q", "-m0"}, "ext4"},
		"ext4, 1 KiB":      {[]string{"mkfs.ext4", "-F", "-q", "-b", "1024"}, "ext4"},
		"external journal": {[]string{"mke2fs", "-F", "-q", "-O", "journal_dev"}, "jbd"},
		"xfs":              {[]string{"mkfs.xfs", "-q"}, "xfs"},
		"btrfs":            {[]string{"mkfs.btrfs", "-q"}, "btrfs"},
		"swap":             {[]string{"mkswap"}, "swap"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath(tc.argv[0]); err != nil {
				t.Skipf("%s is not installed", tc.argv[0])
			}
			path := filepath.Join(t.TempDir(), "disk")
			size := int64(400 * mib)
			if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, size)); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command(tc.argv[0], append(tc.argv[1:], path)...).CombinedOutput(); err != nil {
				t.Fatalf("%v: %v\n%s", tc.argv, err, out)
			}
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			got, err := Probe(f, size)
			if err != nil || got.Type != tc.want {
				t.Errorf("Probe of %v = %v, %v, want %s", tc.argv, got, err, tc.want)
			}
		})
	}
}

// TestProbe_BrokenStart breaks the start of a real filesystem in ways it breaks.
func TestProbe_BrokenStart(t *testing.T) {
	if _, err := exec.LookPath("mkfs.ext4"); err != nil {
		t.Skip("mkfs.ext4 is not installed")
	}
	path := filepath.Join(t.TempDir(), "disk")
	size := int64(200 * mib)
	if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, size)); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", "-Fq", path).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.ext4: %v\n%s", err, out)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(make([]byte, 4096), 0); err != nil {
		t.Fatal(err)
	}
	if got, err := Probe(f, size); err == nil && got.Kind == Blank {
		t.Errorf("Probe of an ext4 without its first block = %v, want anything but blank", got)
	}
}

func FuzzProbe(f *testing.F) {
	f.Add([]byte("XFSB"), int64(4096), []byte("\x53\xef"))
	f.Add([]byte{}, int64(1), []byte{})
	f.Fuzz(func(t *testing.T, head []byte, pad int64, tail []byte) {
		if pad < 0 || pad > 4*mib {
			return
		}
		disk := append(append(bytes.Clone(head), make([]byte, pad)...), tail...)
		got, err := Probe(bytes.NewReader(disk), int64(len(disk)))
		if (err == nil) != (got.Kind != 0) || (got.Kind == Blank) != (err == nil && got.Type == "") {
			t.Errorf("Probe = %+v, %v: neither an answer nor an error", got, err)
		}
	})
}
