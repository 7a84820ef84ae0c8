package blkid

import "encoding/binary"

// Features that tell the ext family apart (fs/ext4/ext4.h, libext2fs/ext2_fs.h).
const (
	extHasJournal = 0x0004 // compat

	extJournalDev  = 0x0008                   // incompat: an external journal, no filesystem
	ext2Incompat   = 0x0002 | 0x0010          // filetype, meta_bg
	ext3Incompat   = ext2Incompat | 0x0004    // needs recovery
	extOldROCompat = 0x0001 | 0x0002 | 0x0004 // sparse_super, large_file, btree_dir
)

// extType names a superblock whose magic is at off, by its feature words at 0x5c.
func extType(d *device, off int64) (string, error) {
	b, err := d.at(off-0x38+0x5c, 12)
	if err != nil || b == nil {
		return "ext4", err
	}
	compat := binary.LittleEndian.Uint32(b)
	incompat := binary.LittleEndian.Uint32(b[4:])
	roCompat := binary.LittleEndian.Uint32(b[8:])
	journal := compat&extHasJournal != 0
	switch {
	case incompat&extJournalDev != 0:
		return "jbd", nil
	case roCompat&^extOldROCompat != 0 || incompat&^ext3Incompat != 0:
		return "ext4", nil
	case journal:
		return "ext3", nil
	case incompat&^ext2Incompat != 0:
		return "ext4", nil
	}
	return "ext2", nil
}

// fat accepts a boot sector that describes a FAT: either its type string, or a BIOS
// parameter block no partition table's boot code has by accident.
func fat(d *device, off int64) (string, error) {
	b, err := d.at(0, 512)
	if err != nil || b == nil {
		return "", err
	}
	if string(b[54:57]) == "FAT" || string(b[82:87]) == "FAT32" {
		return "vfat", nil
	}
	sector := binary.LittleEndian.Uint16(b[11:])
	cluster, reserved, fats, media := b[13], binary.LittleEndian.Uint16(b[14:]), b[16], b[21]
	pow2 := func(n uint16) bool { return n != 0 && n&(n-1) == 0 }
	if (b[0] == 0xeb || b[0] == 0xe9) && sector >= 512 && sector <= 4096 && pow2(sector) &&
		pow2(uint16(cluster)) && reserved != 0 && (fats == 1 || fats == 2) && media >= 0xf0 {
		return "vfat", nil
	}
	return "", nil
}

// emptyMBR is a boot sector without partitions: not blank, but no proof of a table.
const emptyMBR = "boot sector"

func mbr(d *device, off int64) (string, error) {
	b, err := d.at(446, 64)
	if err != nil || b == nil {
		return emptyMBR, err
	}
	for i := 0; i < 64; i += 16 {
		if b[i+4] != 0 { // partition type
			return "dos", nil
		}
	}
	return emptyMBR, nil
}

// nilfs accepts the two byte magic only with revision 2 in front of it.
func nilfs(d *device, off int64) (string, error) {
	b, err := d.at(off-6, 4)
	if err != nil || b == nil || binary.LittleEndian.Uint32(b) != 2 {
		return "", err
	}
	return "nilfs2", nil
}
