use super::*;

/// Bit by bit: the definition.
fn slow(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ if crc & 1 != 0 { 0x82f6_3b78 } else { 0 }
        })
    })
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length as u32)
        .map(|i| (i.wrapping_mul(0x9e37_79b1) >> 23) as u8)
        .collect()
}

/// The test vectors of RFC 3720, appendix B.4, and the usual check string.
#[test]
fn known_vectors() {
    let rising: Vec<u8> = (0..32).collect();
    let falling: Vec<u8> = (0..32).rev().collect();
    assert_eq!(checksum(b""), 0);
    assert_eq!(checksum(b"123456789"), 0xe306_9283);
    assert_eq!(checksum(&[0x00; 32]), 0x8a91_36aa);
    assert_eq!(checksum(&[0xff; 32]), 0x62a8_ab43);
    assert_eq!(checksum(&rising), 0x46dd_794e);
    assert_eq!(checksum(&falling), 0x113f_db5c);
}

#[test]
fn equals_definition_at_every_length_and_alignment() {
    let bytes = pattern(1200);
    for length in (0..300).chain([511, 512, 513, 1023, 1024, 1025]) {
        let offset = length % 67;
        assert_eq!(
            checksum(&bytes[offset..offset + length]),
            slow(&bytes[offset..offset + length]),
            "length {length}"
        );
    }
    let block = pattern(4096);
    assert_eq!(checksum(&block), slow(&block));
}

#[test]
fn copies_and_checks() {
    for length in [0, 1, 511, 4096, 5000] {
        let src = pattern(length);
        let mut dst = vec![0xaa; length];
        assert_eq!(copy_and_checksum(&mut dst, &src), slow(&src));
        assert_eq!(dst, src);
    }
}

#[test]
#[should_panic]
fn unequal_lengths_are_refused() {
    copy_and_checksum(&mut [0; 8], &[0; 9]);
}
