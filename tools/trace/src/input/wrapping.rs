//! Wrappings that are recognised but not unwrapped, so that the error names them and a command.

/// A wrapping: its name, and the command that unwraps it to standard output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wrapping {
    /// Its name.
    pub name: &'static str,
    /// Command that unwraps it; `FILE` is the file.
    pub remedy: &'static str,
}

const fn wrapping(name: &'static str, remedy: &'static str) -> Wrapping {
    Wrapping { name, remedy }
}

const UTF_16: Wrapping = wrapping("UTF-16 text", "convert it: iconv -f UTF-16 -t UTF-8 FILE");
const UTF_32: Wrapping = wrapping("UTF-32 text", "convert it: iconv -f UTF-32 -t UTF-8 FILE");
const TAR: Wrapping = wrapping("a tar archive", "take its trace out: tar -xOf FILE MEMBER");
const GZIP: Wrapping = wrapping("compressed with gzip", "decompress it: gzip -dc FILE");
const ZSTD: Wrapping = wrapping("compressed with zstd", "decompress it: zstd -dc FILE");
const ZIP: Wrapping = wrapping(
    "a zip archive (or a spreadsheet, which is one)",
    "take its trace out: unzip -p FILE; or save the spreadsheet as CSV",
);

/// First bytes, and the wrapping they identify.
const MAGICS: [(&[u8], Wrapping); 18] = [
    (
        b"BZh",
        wrapping("compressed with bzip2", "decompress it: bzip2 -dc FILE"),
    ),
    (
        b"\xfd7zXZ\0",
        wrapping("compressed with xz", "decompress it: xz -dc FILE"),
    ),
    (
        b"\x5d\0\0\x80\0\xff",
        wrapping(
            "compressed with lzma",
            "decompress it: xz -dc --format=lzma FILE",
        ),
    ),
    (
        b"LZIP",
        wrapping("compressed with lzip", "decompress it: lzip -dc FILE"),
    ),
    (
        b"7z\xbc\xaf\x27\x1c",
        wrapping("a 7z archive", "take its trace out: 7z x -so FILE"),
    ),
    (
        b"\x04\x22\x4d\x18",
        wrapping("compressed with lz4", "decompress it: lz4 -dc FILE"),
    ),
    (
        b"\x02\x21\x4c\x18",
        wrapping(
            "compressed with lz4 (old form)",
            "decompress it: lz4 -dc FILE",
        ),
    ),
    (
        b"\x89LZO\0\r\n\x1a\n",
        wrapping("compressed with lzop", "decompress it: lzop -dc FILE"),
    ),
    (b"PK\x03\x04", ZIP),
    (b"PK\x05\x06", ZIP),
    (
        b"Rar!\x1a\x07",
        wrapping("a rar archive", "take its trace out: unrar p -inul FILE"),
    ),
    (
        b"\x1f\x9d",
        wrapping("compressed with compress", "decompress it: gzip -dc FILE"),
    ),
    (
        b"\xff\x06\0\0sNaPpY",
        wrapping("compressed with snappy", "decompress it first"),
    ),
    (b"\xff\xfe\0\0", UTF_32),
    (b"\0\0\xfe\xff", UTF_32),
    (b"\xff\xfe", UTF_16),
    (b"\xfe\xff", UTF_16),
    // A second layer: the first one is removed.
    (b"\x1f\x8b\x08", GZIP),
];

/// Byte order mark that some programs put in front of UTF-8.
pub const UTF_8_MARK: &[u8] = b"\xef\xbb\xbf";

/// Wrapping of a trace with this beginning, one layer of gzip or zstd removed.
pub fn find(head: &[u8]) -> Option<Wrapping> {
    if let Some((_, found)) = MAGICS.iter().find(|(magic, _)| head.starts_with(magic)) {
        return Some(*found);
    }
    if head.starts_with(b"\x28\xb5\x2f\xfd") {
        return Some(ZSTD);
    }
    // Header of the first file: its name, and the magic after name, permissions, owner, size, time,
    // checksum, kind and link.
    if head.get(257..262) == Some(b"ustar") {
        return Some(TAR);
    }
    is_wide(head).then_some(UTF_16)
}

/// True for UTF-16 text without a byte order mark: one byte of each pair is 0, and the other never.
fn is_wide(head: &[u8]) -> bool {
    const LOOKED_AT: usize = 64;
    let pairs = head
        .get(..LOOKED_AT.min(head.len() & !1))
        .unwrap_or_default()
        .chunks_exact(2);
    let all = |high: usize| {
        pairs.clone().all(|pair| {
            pair[high] == 0
                && (pair[1 - high].is_ascii_graphic() || pair[1 - high].is_ascii_whitespace())
        })
    };
    pairs.len() >= 8 && (all(0) || all(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrappings_are_detected_by_their_first_bytes() {
        let name = |bytes: &[u8]| find(bytes).map(|found| found.name);
        assert_eq!(
            (
                name(b"BZh91AY&SY"),
                name(b"\xfd7zXZ\0\0"),
                name(b"PK\x03\x04")
            ),
            (
                Some("compressed with bzip2"),
                Some("compressed with xz"),
                Some(ZIP.name)
            )
        );
        assert_eq!(
            (
                name(b"\xff\xfeW\0"),
                name(b"\xff\xfe\0\0W\0\0\0"),
                name(b"\xfe\xff\0W")
            ),
            (Some(UTF_16.name), Some(UTF_32.name), Some(UTF_16.name))
        );
        let wide: Vec<u8> = "W,0,4096,0\n"
            .encode_utf16()
            .flat_map(u16::to_le_bytes)
            .collect();
        assert_eq!(
            (name(&wide), name(&wide[1..21]), name(&wide[..10])),
            (Some(UTF_16.name), Some(UTF_16.name), None)
        );
        let mut tar = vec![b'a'; 512];
        tar[257..262].copy_from_slice(b"ustar");
        assert_eq!(
            (
                name(&tar),
                name(&tar[..261]),
                name(b"W,0,4096,0\n"),
                name(b"")
            ),
            (Some(TAR.name), None, None, None)
        );
    }
}
