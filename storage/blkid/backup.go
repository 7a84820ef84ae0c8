package blkid

// backups lists copies that a device's owner keeps of its superblock. They are asked when no
// signature was found although the first MiB is not zero: a filesystem whose start was
// damaged must not pass for blank. A first MiB of zeros is how a backend hands out space
// it has used before; copies left there by the former volume mean nothing.
func backups(size int64) []signature {
	return []signature{
		{name: "ext4 (only a backup superblock)", at: fixed(extBackups...), magic: "\x53\xef"},
		{name: "xfs (only a backup superblock)", at: xfsBackups, magic: "XFSB"},
		{name: "btrfs (only a backup superblock)", at: fixed(64<<20+0x40, 256<<30+0x40), magic: "_BHRfS_M"},
		{name: "crypto_LUKS (only the second header)", at: fixed(0x100000, 0x200000, 0x400000), magic: luks2Second},
	}
}

// extBackups is where mke2fs(8) puts the first copies: block groups 1 and 3 for block
// sizes of 1, 2 and 4 KiB. The magic is 0x38 bytes into the block.
var extBackups = []int64{
	8193<<10 + 0x38, 24577<<10 + 0x38,
	16384<<11 + 0x38, 49152<<11 + 0x38,
	32768<<12 + 0x38, 98304<<12 + 0x38,
}

// xfsBackups is where mkfs.xfs(8) starts the second allocation group with its default of
// four groups and 4 KiB blocks: a quarter of the device, rounded up to a block.
func xfsBackups(size int64) []int64 {
	const block = 4096
	blocks := size / block
	return []int64{(blocks + 3) / 4 * block}
}
