//! Members of one of a few small pools with data, changed according to the input (superblocks,
//! journal records and batches get valid checksums again). They are opened by the engine, for
//! reading and for writing, and checked without it. Anything may be refused; nothing may panic.
#![no_main]

#[path = "../pools.rs"]
mod pools;

use libfuzzer_sys::fuzz_target;
use windrow_engine::Engine;
use windrow_inspect::CheckOptions;
use windrow_io::BufPool;

fuzz_target!(|input: &[u8]| {
    let Some(mut members) = pools::garbled(input) else {
        return;
    };
    let buffers = BufPool::new(16 << 20);
    windrow_inspect::check(&mut members, &CheckOptions::everything(), &mut |_| ());
    _ = Engine::open(&mut members, buffers.clone(), &pools::options(true, false));
    _ = Engine::open(&mut members, buffers.clone(), &pools::options(false, true));
    _ = Engine::rebuild_map(
        &mut members,
        buffers,
        &pools::options(true, true),
        Default::default(),
        &mut |_| (),
    );
});
