package blkid

// signature is one mark a device can carry.
type signature struct {
	name  string
	at    func(size int64) []int64 // where the magic may be, in bytes; outside is skipped
	magic string
	// refine names the match more exactly once the magic is there; "" denies it.
	refine func(d *device, off int64) (string, error)
}

// signatures is everything the probe knows. A short magic without refine errs on the
// side of "not blank".
var signatures = slicesOf(filesystems, members, partitionTables)

var filesystems = []signature{
	{name: "ext4", at: fixed(1024 + 0x38), magic: "\x53\xef", refine: extType},
	{name: "xfs", at: fixed(0), magic: "XFSB"},
	{name: "btrfs", at: fixed(65536 + 0x40), magic: "_BHRfS_M"},
	{name: "bcachefs", at: fixed(4096 + 24), magic: "\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef"},
	{name: "bcache", at: fixed(4096 + 24), magic: "\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81"},
	{name: "f2fs", at: fixed(1024, 4096+1024), magic: "\x10\x20\xf5\xf2"},
	{name: "erofs", at: fixed(1024), magic: "\xe2\xe1\xf5\xe0"},
	{name: "squashfs", at: fixed(0), magic: "hsqs"},
	{name: "squashfs", at: fixed(0), magic: "sqsh"},
	{name: "cramfs", at: fixed(0), magic: "\x45\x3d\xcd\x28"},
	{name: "romfs", at: fixed(0), magic: "-rom1fs-"},
	{name: "iso9660", at: fixed(32768 + 1), magic: "CD001"},
	{name: "udf", at: fixed(32768+1, 32768+2048+1, 32768+4096+1), magic: "NSR0"},
	{name: "udf", at: fixed(32768 + 1), magic: "BEA01"},
	{name: "ntfs", at: fixed(3), magic: "NTFS    "},
	{name: "exfat", at: fixed(3), magic: "EXFAT   "},
	{name: "BitLocker", at: fixed(3), magic: "-FVE-FS-"},
	{name: "vfat", at: fixed(510), magic: "\x55\xaa", refine: fat},
	{name: "reiserfs", at: fixed(8192+52, 65536+52), magic: "ReIsEr"},
	{name: "jfs", at: fixed(32768), magic: "JFS1"},
	{name: "nilfs2", at: fixed(1024 + 6), magic: "\x34\x34", refine: nilfs},
	{name: "gfs2", at: fixed(65536), magic: "\x01\x16\x19\x70"},
	{name: "ocfs2", at: fixed(1024, 2048, 4096, 8192), magic: "OCFSV2"},
	{name: "hfsplus", at: fixed(1024), magic: "H+\x00\x04"},
	{name: "hfsplus", at: fixed(1024), magic: "HX\x00\x05"},
	{name: "apfs", at: fixed(32), magic: "NXSB"},
	{name: "ufs", at: fixed(8192+1372, 65536+1372), magic: "\x54\x19\x01\x00"},
	{name: "ufs", at: fixed(8192+1372, 65536+1372), magic: "\x19\x01\x54\x19"},
	{name: "VMFS", at: fixed(1 << 20), magic: "\x0d\xd0\x01\xc0"},
	{name: "ceph_bluestore", at: fixed(0), magic: "bluestore block device"},
}

// members are things that use a device as a part of something else.
var members = []signature{
	{name: "LVM2_member", at: fixed(0, 512, 1024, 1536), magic: "LABELONE"},
	{name: "crypto_LUKS", at: fixed(0), magic: "LUKS\xba\xbe"},
	{name: "crypto_LUKS", at: fixed(luks2Secondary...), magic: luks2Second},
	{name: "linux_raid_member", at: mdOffsets, magic: "\xfc\x4e\x2b\xa9"},
	{name: "linux_raid_member", at: mdOffsets, magic: "\xa9\x2b\x4e\xfc"}, // 0.90 is host-endian
	{name: "isw_raid_member", at: fromEnd(1024), magic: "Intel Raid ISM Cfg Sig. "},
	{name: "ddf_raid_member", at: fromEnd(512), magic: "\xde\x11\xde\x11"},
	{name: "swap", at: swapOffsets, magic: "SWAPSPACE2"},
	{name: "swap", at: swapOffsets, magic: "SWAP-SPACE"},
	{name: "swsuspend", at: swapOffsets, magic: "S1SUSPEND"},
	{name: "swsuspend", at: swapOffsets, magic: "S2SUSPEND"},
	{name: "zfs_member", at: zfsOffsets, magic: "\x0c\xb1\xba\x00\x00\x00\x00\x00"},
	{name: "zfs_member", at: zfsOffsets, magic: "\x00\x00\x00\x00\x00\xba\xb1\x0c"},
	{name: "DM_integrity", at: fixed(0), magic: "integrt\x00"},
	{name: "DM_verity_hash", at: fixed(0), magic: "verity\x00\x00"},
	{name: "DM_snapshot_cow", at: fixed(0), magic: "SnAp"},
	{name: "vdo", at: fixed(0), magic: "dmvdo001"},
	{name: "stratis", at: fixed(512+4, 4608+4), magic: "!Stra0tis\x86\xff\x02^\x41rh"},
	{name: "DM_thin_metadata", at: fixed(32), magic: "\x5a\x4d\x9c\x01"}, // 27022010, dm-thin-metadata.c
}

var partitionTables = []signature{
	// The header is in LBA 1 and, as a copy, in the last LBA, for both sector sizes.
	{name: "gpt", at: fixed(512, 4096), magic: "EFI PART"},
	{name: "gpt", at: fromEnd(512, 4096), magic: "EFI PART"},
	{name: "dos", at: fixed(510), magic: "\x55\xaa", refine: mbr},
	{name: "mac", at: fixed(512), magic: "PM\x00\x00"},
	{name: "sun", at: fixed(508), magic: "\xda\xbe"},
	{name: "sgi", at: fixed(0), magic: "\x0b\xe5\xa9\x41"},
	{name: "bsd", at: fixed(64, 512), magic: "\x57\x45\x56\x82"},
}

// luks2Secondary is where the second LUKS2 header may be (LUKS2 on-disk format 2.1), as far
// as the first MiB reaches; backups has the rest.
var luks2Secondary = []int64{0x4000, 0x8000, 0x10000, 0x20000, 0x40000, 0x80000}

const luks2Second = "SKUL\xba\xbe"

func slicesOf(tables ...[]signature) []signature {
	var all []signature
	for _, t := range tables {
		all = append(all, t...)
	}
	return all
}

func fixed(offs ...int64) func(int64) []int64 {
	return func(int64) []int64 { return offs }
}

func fromEnd(offs ...int64) func(int64) []int64 {
	return func(size int64) []int64 {
		at := make([]int64, len(offs))
		for i, off := range offs {
			at[i] = size - off
		}
		return at
	}
}

// mdOffsets: md(4). 0.90 in the last aligned 64 KiB, 1.0 8 KiB before the end on a 4 KiB
// boundary, 1.1 at the start, 1.2 at 4 KiB.
func mdOffsets(size int64) []int64 {
	const reserved = 64 << 10
	sectors := size / 512
	return []int64{0, 4096, size&^(reserved-1) - reserved, ((sectors - 16) &^ 7) * 512}
}

// swapOffsets: the magic ends the first page, whatever the page size of the machine.
func swapOffsets(int64) []int64 {
	return []int64{4096 - 10, 8192 - 10, 16384 - 10, 32768 - 10, 65536 - 10}
}

// zfsOffsets: four labels of 256 KiB, two at each end; the upper half of a label is an
// array of uberblocks, each of which starts with the magic (OpenZFS vdev_label.c).
func zfsOffsets(size int64) []int64 {
	const label, ring, slot = 256 << 10, 128 << 10, 1 << 10
	end := size &^ (label - 1)
	var at []int64
	for _, start := range []int64{0, label, end - 2*label, end - label} {
		for off := int64(ring); off < label; off += slot {
			at = append(at, start+off)
		}
	}
	return at
}
