use super::*;

#[test]
fn fills_of_every_length() {
    for length in 1..300 {
        assert_eq!(
            classify(&vec![0; length]),
            BlockClass::Zero,
            "length {length}"
        );
        assert_eq!(
            classify(&vec![0xff; length]),
            BlockClass::Ones,
            "length {length}"
        );
        assert_eq!(
            classify(&vec![0x55; length]),
            BlockClass::Data,
            "length {length}"
        );
    }
    assert_eq!(classify(&[]), BlockClass::Data);
}

#[test]
fn one_bit_anywhere_makes_it_data() {
    let mut block = vec![0u8; 4096];
    for at in 0..block.len() {
        block[at] = 1 << (at % 8);
        assert_eq!(classify(&block), BlockClass::Data, "byte {at}");
        block[at] = 0;
    }
    block.fill(0xff);
    for at in 0..block.len() {
        block[at] = !(1 << (at % 8));
        assert_eq!(classify(&block), BlockClass::Data, "byte {at}");
        block[at] = 0xff;
    }
}

#[test]
fn zeroes_followed_by_ones_are_data() {
    let mut block = vec![0u8; 4096];
    block[2048..].fill(0xff);
    assert_eq!(classify(&block), BlockClass::Data);
    block.reverse();
    assert_eq!(classify(&block), BlockClass::Data);
}

#[test]
fn unaligned_blocks() {
    let zeroes = vec![0u8; 4096 + 16];
    for offset in 0..16 {
        assert_eq!(classify(&zeroes[offset..offset + 4096]), BlockClass::Zero);
    }
}
