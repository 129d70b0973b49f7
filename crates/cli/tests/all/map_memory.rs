//! The memory that maps may use, for commands that open a pool at rest.

use crate::support;

use support::{CREATE, World, both};

/// Only `serve` and the rebuild of the map could be given more: beyond a tebibyte of blocks no other command could open the pool.
#[test]
fn commands_at_rest_take_the_memory_that_a_pool_needs() {
    let world = World::with_volume(CREATE, "1G");
    let server = world.serve("");
    let mut client = server.client();
    // A map page is for a mebibyte.
    for number in 0..200 {
        client.write(number, number << 20, &[7; 4096], false);
        client.push().expect("sent");
        client.answer().expect("written");
    }
    drop(client);
    assert!(server.stop());
    for command in ["pool status tank", "volume create tank/more 1G", "pool set tank spare=20%", "pool import tank", "pool export tank"] {
        let refused = world.run(&format!("{command} --map-memory 64K"));
        assert!(both(&refused).contains("WR-POOL-013"), "{command}: {}", both(&refused));
        world.succeeds(&format!("{command} --map-memory 1G"));
    }
}
