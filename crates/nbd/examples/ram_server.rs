//! Serves volumes in memory: `ram_server SOCKET SIZE [at-once|later]`.
//!
//! SOCKET is a path or `tcp:ADDRESS:PORT`; SIZE is in bytes. The default export and a read-only
//! one, `fixed`, are served until the process is killed.

use std::sync::Arc;
use windrow_frontend::ram::{Delivery, RamExport, RamSource};
use windrow_nbd::{Listen, Server, ServerOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(socket), Some(size)) = (arguments.next(), arguments.next()) else {
        return Err("usage: ram_server SOCKET SIZE [at-once|later]".into());
    };
    let listen = if socket.starts_with("tcp:") {
        socket.parse()?
    } else {
        Listen::Unix(socket.into())
    };
    let fixed = RamExport {
        read_only: true,
        ..RamExport::new("fixed", 16 << 20)
    };
    let source = Arc::new(RamSource::new(&[RamExport::new("", size.parse()?), fixed]));
    if arguments.next().as_deref() == Some("later") {
        source.set_delivery(Delivery::Later);
    }
    let server = Server::start(source, vec![listen], ServerOptions::default())?;
    println!(
        "{}",
        server
            .addresses()
            .iter()
            .map(Listen::to_string)
            .collect::<Vec<_>>()
            .join("\n")
    );
    loop {
        std::thread::park();
    }
}
