//! Bugs that were found, each as the story of how it happened. Members are plain memory; the order of events is written out.

use windrow_engine::*;
use windrow_io::*;
use windrow_layout::superblock::Properties;
use windrow_units::{MemberId, Redundancy, Uuid, VolumeId};

struct Memory {
    data: Vec<Vec<u8>>,
    present: Vec<bool>,
    /// Members that fail every write.
    failing: Vec<bool>,
}

impl MemberIo for Memory {
    fn member_count(&self) -> usize {
        self.data.len()
    }
    fn is_present(&self, member: MemberId) -> bool {
        self.present[member.index()]
    }
    fn size(&self, member: MemberId) -> u64 {
        self.data[member.index()].len() as u64
    }
    fn read(&mut self, member: MemberId, offset: u64, buf: &mut [u8]) -> Result<(), MemberError> {
        buf.copy_from_slice(&self.data[member.index()][offset as usize..][..buf.len()]);
        Ok(())
    }
    fn write(&mut self, member: MemberId, offset: u64, buf: &[u8]) -> Result<(), MemberError> {
        if self.failing[member.index()] {
            return Err(MemberError { member, kind: MemberErrorKind::Media, offset, code: 5 });
        }
        self.data[member.index()][offset as usize..][..buf.len()].copy_from_slice(buf);
        Ok(())
    }
    fn flush(&mut self, _: MemberId) -> Result<(), MemberError> {
        Ok(())
    }
}

const PROPERTIES: Properties = Properties { spare_per_mille: 100, seal_age_ms: 20, victim_policy: 0, discard: false };

struct Machine {
    memory: Memory,
    engine: Engine,
    events: Vec<Event>,
    out: Outbox,
    /// Commands kept back instead of being carried out.
    held: Option<Vec<MemberCommand>>,
    completions: Vec<Completion>,
    control: Vec<ControlCompletion>,
    now_ns: u64,
}

impl Machine {
    fn new(members: usize, mib: usize, spare_per_mille: u16) -> Self {
        let spec = PoolSpec {
            name: "story".into(),
            redundancy: Redundancy::Single,
            chunk_rows: None,
            segment_rows: None,
            align_bytes: 4096,
            pool: Uuid([9; 16]),
            members: (0..members).map(|i| (Uuid([i as u8 + 1; 16]), (mib as u64) << 20)).collect(),
            created_unix_s: 0,
            properties: Properties { spare_per_mille, ..PROPERTIES },
        };
        let mut memory = Memory { data: vec![vec![0; mib << 20]; members], present: vec![true; members], failing: vec![false; members] };
        Engine::format(&mut memory, &spec).expect("format");
        Self::open(memory)
    }

    fn open(mut memory: Memory) -> Self {
        let options = OpenOptions { host: Uuid([1; 16]), read_only: false, force: false, limits: Limits::default() };
        let (engine, _) = Engine::open(&mut memory, BufPool::new(64 << 20), &options).expect("open");
        Self { memory, engine, events: Vec::new(), out: Outbox::default(), held: None, completions: Vec::new(), control: Vec::new(), now_ns: 1 }
    }

    /// Power goes: what the members hold is all that is left.
    fn crash(self) -> Self {
        Self::open(self.memory)
    }

    fn carry_out(&mut self, command: MemberCommand) {
        let MemberCommand { member, tag, op } = command;
        let (buf, result) = match op {
            MemberOp::Read { offset, mut buf } => {
                let result = self.memory.read(member, offset, &mut buf);
                (Some(buf), result)
            }
            MemberOp::Write { offset, buf } => {
                let result = self.memory.write(member, offset, &buf);
                (Some(buf), result)
            }
            MemberOp::Flush | MemberOp::Discard { .. } => (None, Ok(())),
        };
        self.events.push(Event::Member(MemberDone { member, tag, buf, result }));
    }

    fn settle(&mut self) {
        loop {
            while !self.events.is_empty() {
                self.engine.apply(&mut self.events, &mut self.out);
                for command in std::mem::take(&mut self.out.commands) {
                    match &mut self.held {
                        Some(held) => held.push(command),
                        None => self.carry_out(command),
                    }
                }
                for mut job in std::mem::take(&mut self.out.jobs) {
                    job.run();
                    self.events.push(Event::Job(job));
                }
                self.completions.append(&mut self.out.completions);
                self.control.append(&mut self.out.control);
            }
            // A wake that is due now is the engine's own wish to go on.
            match self.out.wake_at_ns.take() {
                Some(at) if at <= self.now_ns => self.events.push(Event::Tick(self.now_ns)),
                _ => return,
            }
        }
    }

    /// Lets time pass until `count` requests are answered; false if nothing moves any more.
    fn wait_for(&mut self, count: usize) -> bool {
        for _ in 0..400 {
            self.settle();
            if self.completions.len() >= count {
                return true;
            }
            self.now_ns += 50_000_000;
            self.events.push(Event::Tick(self.now_ns));
        }
        false
    }

    fn request(&mut self, volume: VolumeId, op: Op) {
        self.events.push(Event::Request(Request { id: RequestId(1), volume, op }));
    }

    fn write(&mut self, volume: VolumeId, lba: u64, byte: u8) {
        let mut bytes = vec![byte; 4096];
        bytes[0] = !byte;
        self.request(volume, Op::Write { offset: lba * 4096, data: Payload::copy_of(&bytes), fua: false });
        self.settle();
    }

    fn flush(&mut self, volume: VolumeId) {
        self.request(volume, Op::Flush);
        self.settle();
    }

    fn byte(&mut self, volume: VolumeId, lba: u64) -> u8 {
        self.request(volume, Op::Read { offset: lba * 4096, length: 4096 });
        self.settle();
        match self.completions.pop().map(|c| c.result) {
            Some(Ok(Reply::Data(parts))) => parts[0][1],
            other => panic!("read answered {other:?}"),
        }
    }

    fn command(&mut self, command: Control) -> Option<Result<ControlReply, ControlError>> {
        self.events.push(Event::Control(ControlRequest { id: ControlId(1), command }));
        self.settle();
        self.control.pop().map(|c| c.result)
    }

    fn volume(&mut self, size_bytes: u64) -> VolumeId {
        match self.command(Control::VolumeCreate { name: "v".into(), size_bytes }) {
            Some(Ok(ControlReply::Volume(volume))) => volume,
            other => panic!("volume create answered {other:?}"),
        }
    }
}

/// A checkpoint began while the walk of a large write-zeroes was half done: its pages showed the old bytes, and replay began
/// behind the record. After a clean shutdown zeroed blocks were back.
#[test]
fn zeroed_blocks_stay_zero_over_a_clean_shutdown() {
    let mut machine = Machine::new(3, 256, 100);
    let volume = machine.volume(4 << 30);
    for page in 0..600 {
        machine.write(volume, page * 256, 0xaa);
    }
    machine.flush(volume);
    machine.request(volume, Op::WriteZeroes { offset: 0, length: 4 << 30, no_hole: false, fua: true });
    // The shutdown is asked for before the walk had time to go on.
    assert_eq!(machine.command(Control::Shutdown { export: true }), Some(Ok(ControlReply::Done)));
    let mut machine = machine.crash();
    assert_eq!(machine.engine.status().used_bytes, 0);
    assert!((0..600).all(|page| machine.byte(volume, page * 256) == 0));
}

/// A generation reached one member only; the others went on without it to the same number. When it came back it won, and a
/// flushed write was gone.
#[test]
fn a_generation_that_only_a_minority_has_does_not_rule() {
    let mut machine = Machine::new(3, 64, 100);
    let volume = machine.volume(1 << 30);
    machine.write(volume, 0, 0x11);
    machine.flush(volume);
    machine.held = Some(Vec::new());
    machine.command(Control::SetProperties(Properties { seal_age_ms: 30, ..PROPERTIES }));
    for command in machine.held.take().unwrap_or_default() {
        if command.member == MemberId(2) {
            machine.carry_out(command);
        }
    }
    machine.memory.present[2] = false;
    let mut machine = machine.crash();
    machine.write(volume, 0, 0x77);
    machine.flush(volume);
    machine.memory.present[2] = true;
    let mut machine = machine.crash();
    assert_eq!(machine.byte(volume, 0), 0x77);
}

/// Edge blocks that were in memory were read at once, and each finished write admitted the next from inside itself.
#[test]
fn thousands_of_unaligned_writes_do_not_eat_the_stack() {
    let mut machine = Machine::new(8, 64, 100);
    let volume = machine.volume(1 << 30);
    machine.held = Some(Vec::new());
    let block = Payload::copy_of(&[1; 4096]);
    for lba in 0..16_000 {
        machine.request(volume, Op::Write { offset: lba * 4096, data: block.clone(), fua: false });
    }
    machine.settle();
    for lba in 0..20_000 {
        machine.request(volume, Op::Write { offset: (100_000 + lba) * 4096, data: block.slice(0, 512), fua: false });
    }
    machine.settle();
    while let Some(held) = machine.held.take().filter(|h| !h.is_empty()) {
        machine.held = Some(Vec::new());
        for command in held {
            machine.carry_out(command);
        }
        machine.settle();
    }
    machine.held = None;
    assert!(machine.wait_for(36_000), "{}", machine.engine.describe());
}

/// A full pool under random overwrites stood still: the cleaner's last blocks waited for a segment, the checkpoint that would
/// have freed one waited for the cleaner. And a shutdown stopped the cleaner that admitted writes waited for.
#[test]
fn a_full_pool_moves_and_shuts_down() {
    let mut machine = Machine::new(4, 96, 100);
    let usable = machine.engine.status().plan.usable_bytes / 4096;
    let volume = machine.volume(usable * 4096);
    let block = Payload::copy_of(&[[5u8; 8], [1; 8]].concat().repeat(256));
    let mut state = 88_172_645_463_325_252u64;
    let mut sent = 0;
    for n in 0..usable * 2 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let lba = if n < usable { n } else { state % usable };
        machine.request(volume, Op::Write { offset: lba * 4096, data: block.clone(), fua: false });
        sent += 1;
        if n % 128 == 0 && n < usable * 7 / 4 {
            assert!(machine.wait_for(sent), "{}", machine.engine.describe());
        }
    }
    machine.events.push(Event::Control(ControlRequest { id: ControlId(2), command: Control::Shutdown { export: true } }));
    assert!(machine.wait_for(sent), "{}", machine.engine.describe());
    assert!(machine.completions.iter().all(|c| c.result.is_ok()));
    machine.wait_for(usize::MAX);
    assert!(machine.control.iter().any(|c| c.id == ControlId(2) && c.result.is_ok()), "{}", machine.engine.describe());
}

/// The usual death of an SSD: it reads, but fails writes. One such member made the pool impossible to open.
#[test]
fn a_member_that_fails_writes_is_left_out_at_the_start() {
    let mut machine = Machine::new(3, 64, 100);
    let volume = machine.volume(1 << 30);
    machine.write(volume, 5, 0x42);
    machine.flush(volume);
    machine.memory.failing[1] = true;
    let mut machine = machine.crash();
    assert_eq!(machine.engine.status().state, "degraded");
    assert_eq!(machine.byte(volume, 5), 0x42);
    machine.write(volume, 6, 0x43);
    machine.flush(volume);
    let mut machine = machine.crash();
    assert_eq!((machine.byte(volume, 5), machine.byte(volume, 6)), (0x42, 0x43));
}
