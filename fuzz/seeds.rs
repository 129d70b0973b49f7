//! Makes the corpora that the targets of the NBD server start from: `corpus/TARGET/seed-N`.

#[path = "../crates/nbd/tests/support/hostile.rs"]
mod hostile;

fn main() -> std::io::Result<()> {
    for target in ["nbd_handshake", "nbd_requests", "nbd_connection"] {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
        std::fs::create_dir_all(&folder)?;
        for (number, seed) in hostile::seeds().into_iter().enumerate() {
            // The first byte of a program for requests is no instruction.
            let prefix: &[u8] = if target == "nbd_requests" { &[0x0d] } else { &[] };
            std::fs::write(folder.join(format!("seed-{number}")), [prefix, &seed].concat())?;
        }
    }
    Ok(())
}
