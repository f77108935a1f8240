-- Wireshark dissector of the weft protocol, version 2 (docs/PROTOCOL.md has the byte tables).
--
--   wireshark -X lua_script:weft.lua capture.pcap
--   tshark -X lua_script:weft.lua -r capture.pcap -Y weft.done
--
-- Or copy it into the folder that Help > About > Folders calls "Personal Lua Plugins".
--
-- Packets are recognised by their first bytes on any UDP port, and without a look at them on the
-- ports of the preference "weft.ports". Classes PLAIN and AUTH are decoded whole; of SEAL the header
-- is in the clear and the rest is shown as encrypted. Tags are not verified: that needs the job's
-- key. Class AGG, the packets between workers and an aggregation box, is decoded whole. What breaks
-- a rule of the protocol is marked "weft.malformed"; a packet of which the capture holds only the
-- beginning is not, but says so ("weft.cut").

local weft = Proto("weft", "weft bounded-loss transport")

local VERSION = 2
local CLASSES = {
    [0] = "PLAIN", [1] = "AUTH", [2] = "SEAL", [8] = "HELLO", [9] = "ACCEPT", [10] = "COOKIE",
    [11] = "UNKNOWN", [12] = "REFUSED", [13] = "AGG",
}
local MODES = { [0] = "none", [1] = "auth", [2] = "seal" }
local FRAMES = {
    [1] = "ACK", [2] = "DONE", [3] = "FINISH", [4] = "PING", [5] = "PATH_CHALLENGE",
    [6] = "PATH_RESPONSE", [7] = "CLOSE", [8] = "CRITICAL", [10] = "PADDING",
    [11] = "BACKLOG", [12] = "ACK_SHORT", [13] = "MESSAGE",
}
local STATUSES = { [0] = "COMPLETE", [1] = "SHORT" }
local CLOSE_CODES = {
    [0] = "finished", [1] = "silent too long", [2] = "protocol violated", [3] = "idle too long",
}
local REFUSALS = { [1] = "version", [2] = "key", [3] = "mode", [4] = "full", [5] = "closed" }
-- Whole lengths of the packets outside a connection.
local LENGTHS = { [8] = 120, [9] = 112, [10] = 40, [11] = 32, [12] = 8 }
local TAG_BYTES = 16
-- Packets of an aggregation box: kinds, and the bytes of the header and of a block of a hot row.
local KINDS = { [1] = "DENSE", [2] = "ROWS", [3] = "SUM", [4] = "ACK" }
local DENSE, ROWS, SUM, BOX_ACK = 1, 2, 3, 4
local AGG_HEADER, AGG_ROW, AGG_ACK = 32, 36, 64
local MASKED = 255
local unpack = table.unpack or unpack -- Lua 5.1 has it elsewhere

local f = {
    version = ProtoField.uint8("weft.version", "Version", base.DEC, nil, 0xf0),
    class = ProtoField.uint8("weft.class", "Class", base.DEC, CLASSES, 0x0f),
    -- connection packets
    flags = ProtoField.uint8("weft.flags", "Flags", base.HEX),
    key_phase = ProtoField.bool("weft.flags.key_phase", "KEY_PHASE", 8, nil, 0x80),
    pass_end = ProtoField.bool("weft.flags.pass_end", "PASS_END", 8, nil, 0x40),
    limited = ProtoField.bool("weft.flags.sender_limited", "SENDER_LIMITED", 8, nil, 0x20),
    priority = ProtoField.uint8("weft.flags.priority", "Priority", base.DEC, nil, 0x1c),
    brief = ProtoField.bool("weft.flags.brief", "BRIEF", 8, nil, 0x10),
    shared = ProtoField.bool("weft.flags.shared", "SHARED", 8, nil, 0x04),
    has_control = ProtoField.bool("weft.flags.control", "CONTROL", 8, nil, 0x02),
    has_data = ProtoField.bool("weft.flags.data", "DATA", 8, nil, 0x01),
    data_count = ProtoField.uint16("weft.data_count", "DATA packets sent, low 16 bits"),
    connection = ProtoField.uint32("weft.connection", "Connection id", base.HEX),
    number = ProtoField.uint64("weft.number", "Packet number"),
    control_bytes = ProtoField.uint16("weft.control_bytes", "Bytes of the control block"),
    encrypted = ProtoField.bytes("weft.encrypted", "Encrypted"),
    tag = ProtoField.bytes("weft.tag", "Tag"),
    frame = ProtoField.uint8("weft.frame", "Frame", base.DEC, FRAMES),
    -- ACK
    ack = ProtoField.none("weft.ack", "ACK"),
    ack_words = ProtoField.uint8("weft.ack.words", "Words"),
    ack_notes = ProtoField.uint8("weft.ack.notes", "Notes"),
    ack_flags = ProtoField.uint8("weft.ack.flags", "ACK flags", base.HEX),
    ack_idle = ProtoField.bool("weft.ack.idle", "IDLE", 8, nil, 0x01),
    ack_later = ProtoField.bool("weft.ack.later", "LATER", 8, nil, 0x02),
    ack_delay_step = ProtoField.uint8("weft.ack.delay_step", "Longest delay (step)", base.DEC, nil, 0xfc),
    ack_largest = ProtoField.uint64("weft.ack.largest", "Largest"),
    ack_delay = ProtoField.uint32("weft.ack.delay", "Delay (64 ns)"),
    ack_clock = ProtoField.uint32("weft.ack.clock", "Clock (64 ns)"),
    ack_ect = ProtoField.uint32("weft.ack.ect", "ECT packets"),
    ack_ce = ProtoField.uint32("weft.ack.ce", "CE packets"),
    ack_credit = ProtoField.uint32("weft.ack.credit", "Credit"),
    ack_open_from = ProtoField.uint32("weft.ack.open_from", "Open from, low half"),
    ack_word = ProtoField.uint64("weft.ack.word", "Bitmap word", base.HEX),
    ack_short_largest = ProtoField.uint32("weft.ack_short.largest", "Largest, low half"),
    ack_short_delay = ProtoField.uint16("weft.ack_short.delay", "Delay (1,024 ns)"),
    ack_short_credit = ProtoField.uint16("weft.ack_short.credit", "Credit, low half"),
    ack_short_open_from = ProtoField.uint8("weft.ack_short.open_from", "Open from, low byte"),
    ack_short_ce = ProtoField.uint8("weft.ack_short.ce", "CE packets, low byte"),
    note = ProtoField.none("weft.ack.note", "Note"),
    note_msg = ProtoField.uint32("weft.ack.note.msg", "Message"),
    note_received = ProtoField.uint32("weft.ack.note.received", "Chunks held"),
    -- DONE
    done = ProtoField.none("weft.done", "DONE"),
    done_status = ProtoField.uint8("weft.done.status", "Status", base.DEC, STATUSES),
    done_words = ProtoField.uint16("weft.done.words", "Words"),
    done_msg = ProtoField.uint32("weft.done.msg", "Message"),
    done_chunks = ProtoField.uint32("weft.done.chunks", "Chunks"),
    done_received = ProtoField.uint32("weft.done.received", "Chunks received"),
    done_refused = ProtoField.uint32("weft.done.refused", "Chunks refused"),
    done_first = ProtoField.uint32("weft.done.first", "Chunk of the first bit"),
    done_word = ProtoField.uint64("weft.done.word", "Mask word", base.HEX),
    -- the small ones
    finish_flags = ProtoField.uint8("weft.finish.flags", "FINISH flags", base.HEX),
    finish_short = ProtoField.bool("weft.finish.short", "SHORT", 8, nil, 0x01),
    finish_msg = ProtoField.uint32("weft.finish.msg", "Message"),
    token = ProtoField.uint64("weft.path.token", "Token", base.HEX),
    backlog_end = ProtoField.uint32("weft.backlog.end", "DATA packets when all is sent"),
    message_priority = ProtoField.uint8("weft.message.priority", "Priority"),
    message_critical = ProtoField.uint8("weft.message.critical", "Critical chunks"),
    message_msg = ProtoField.uint32("weft.message.msg", "Message"),
    message_total = ProtoField.uint32("weft.message.total", "Elements"),
    message_chunk_elems = ProtoField.uint16("weft.message.chunk_elems", "Elements of a chunk"),
    message_elem_bytes = ProtoField.uint16("weft.message.elem_bytes", "Bytes of an element"),
    message_tag = ProtoField.uint64("weft.message.tag", "Tag", base.HEX),
    message_payload = ProtoField.bytes("weft.message.payload", "Message"),
    close_code = ProtoField.uint16("weft.close.code", "Code", base.DEC, CLOSE_CODES),
    padding = ProtoField.uint16("weft.padding", "Padding, bytes"),
    -- CRITICAL
    critical_words = ProtoField.uint16("weft.critical.words", "Words"),
    critical_msg = ProtoField.uint32("weft.critical.msg", "Message"),
    critical_chunks = ProtoField.uint32("weft.critical.chunks", "Chunks"),
    critical_first = ProtoField.uint32("weft.critical.first", "Chunk of the first bit"),
    critical_word = ProtoField.uint64("weft.critical.word", "Mask word", base.HEX),
    -- DATA
    data = ProtoField.none("weft.data", "DATA"),
    msg = ProtoField.uint32("weft.data.msg", "Message"),
    chunk = ProtoField.uint32("weft.data.chunk", "Chunk"),
    total = ProtoField.uint32("weft.data.total", "Elements"),
    chunk_elems = ProtoField.uint16("weft.data.chunk_elems", "Elements in a chunk"),
    elem_bytes = ProtoField.uint16("weft.data.elem_bytes", "Bytes in an element"),
    critical = ProtoField.uint8("weft.data.critical", "Critical leading chunks (255: a mask)"),
    lost_max = ProtoField.uint24("weft.data.lost_max", "Chunks that may be missing"),
    data_tag = ProtoField.uint64("weft.data.tag", "Tag of the message", base.HEX),
    data_clock = ProtoField.uint32("weft.data.clock", "Clock echoed (64 ns)"),
    chunks = ProtoField.uint32("weft.data.chunks", "Chunks of the message"),
    payload = ProtoField.bytes("weft.data.payload", "Payload"),
    -- handshake
    mode = ProtoField.uint8("weft.mode", "Mode", base.DEC, MODES),
    key_id = ProtoField.uint16("weft.key_id", "Key id", base.HEX),
    own_connection = ProtoField.uint32("weft.own_connection", "Own connection id", base.HEX),
    incarnation = ProtoField.uint64("weft.incarnation", "Incarnation", base.HEX),
    incarnation_high =
        ProtoField.uint16("weft.incarnation_high", "Incarnation, bits 63 to 48", base.HEX),
    incarnation_middle =
        ProtoField.uint32("weft.incarnation_middle", "Incarnation, bits 47 to 16", base.HEX),
    name = ProtoField.uint64("weft.name", "Name", base.HEX),
    open_from = ProtoField.uint64("weft.open_from", "Open from"),
    clock = ProtoField.uint32("weft.clock", "Clock (64 ns)"),
    unscheduled = ProtoField.uint16("weft.unscheduled", "Unscheduled DATA packets"),
    packet_max = ProtoField.uint16("weft.packet_bytes_max", "Longest packet"),
    reserved = ProtoField.bytes("weft.reserved", "Reserved"),
    cookie = ProtoField.bytes("weft.cookie", "Cookie"),
    ephemeral = ProtoField.bytes("weft.ephemeral", "Ephemeral key"),
    mac = ProtoField.bytes("weft.mac", "MAC"),
    refusal = ProtoField.uint8("weft.refused.reason", "Reason", base.DEC, REFUSALS),
    refused_mode = ProtoField.uint8("weft.refused.mode", "Lowest mode taken", base.DEC, MODES),
    -- packets of an aggregation box
    agg_kind = ProtoField.uint8("weft.agg.kind", "Kind", base.DEC, KINDS),
    agg_flags = ProtoField.uint8("weft.agg.flags", "Flags", base.HEX),
    agg_float32 = ProtoField.bool("weft.agg.float32", "FLOAT32", 8, nil, 0x01),
    agg_direct = ProtoField.bool("weft.agg.direct", "DIRECT", 8, nil, 0x02),
    agg_agreed = ProtoField.bool("weft.agg.agreed", "AGREED", 8, nil, 0x04),
    agg_exponent = ProtoField.int8("weft.agg.exponent", "Exponent"),
    agg_job = ProtoField.uint16("weft.agg.job", "Job"),
    agg_member = ProtoField.uint16("weft.agg.member", "Member"),
    agg_slot = ProtoField.uint32("weft.agg.slot", "Slot"),
    agg_bank = ProtoField.uint32("weft.agg.bank", "Bank"),
    agg_epoch = ProtoField.uint32("weft.agg.epoch", "Epoch"),
    agg_round = ProtoField.uint32("weft.agg.round", "Round"),
    agg_number = ProtoField.uint32("weft.agg.number", "Number"),
    agg_from = ProtoField.uint32("weft.agg.from", "All numbers below are settled"),
    agg_base = ProtoField.uint32("weft.agg.base", "Base of the window"),
    agg_count = ProtoField.uint16("weft.agg.count", "Count"),
    agg_next = ProtoField.int8("weft.agg.next", "Exponent of the next round"),
    agg_value = ProtoField.int32("weft.agg.value", "Value"),
    agg_real = ProtoField.float("weft.agg.real", "Value"),
    agg_row = ProtoField.none("weft.agg.row", "Block"),
    agg_block = ProtoField.uint16("weft.agg.block", "Block"),
    agg_added = ProtoField.uint64("weft.agg.added", "Added", base.HEX),
    agg_refused = ProtoField.uint64("weft.agg.refused", "Refused", base.HEX),
}

local fields = {}
for _, field in pairs(f) do
    fields[#fields + 1] = field
end
weft.fields = fields

local malformed = ProtoExpert.new("weft.malformed", "Malformed weft packet",
                                  expert.group.MALFORMED, expert.severity.ERROR)
local other_version = ProtoExpert.new("weft.other_version", "Another version of the protocol",
                                      expert.group.UNDECODED, expert.severity.WARN)
local cut = ProtoExpert.new("weft.cut", "The capture holds only the beginning of this packet",
                            expert.group.UNDECODED, expert.severity.NOTE)
weft.experts = { malformed, other_version, cut }

weft.prefs.ports = Pref.range("UDP ports", "7700-7701",
                              "Ports on which packets are taken for weft without a look at them",
                              65535)

-- ---- helpers ------------------------------------------------------------------------------------

-- State of one packet: the bytes, a place in them, and whether something was wrong.
local function reader(tvb, whole)
    return { tvb = tvb, whole = whole, at = 0, stop = tvb:len(), bad = nil }
end

local function fail(r, tree, why)
    if not r.bad then
        r.bad = why
        tree:add_proto_expert_info(malformed, why)
    end
    return false
end

-- Are there n bytes up to the end of what is being read? The end is the packet's or a block's. Where
-- the capture ends before the packet does, it is nobody's fault.
local function has(r, tree, n, what)
    if r.at + n <= r.stop then
        return true
    end
    return r.whole and fail(r, tree, what .. " ends too early")
end

-- Add a field of n bytes and move on; gives the range, for its value.
local function take(r, tree, field, n)
    local range = r.tvb(r.at, n)
    tree:add(field, range)
    r.at = r.at + n
    return range
end

local function u64(range)
    return range:uint64()
end

local function words(r, tree, field, count, label)
    for i = 0, count - 1 do
        local item = tree:add(field, r.tvb(r.at, 8))
        item:append_text(label(i))
        r.at = r.at + 8
    end
end

local function bits_of(first)
    return function(i)
        return string.format(" (chunks %d to %d)", first + 64 * i, first + 64 * i + 63)
    end
end

-- Bits of chunks that do not exist must be zero, and the words must lie within the mask.
local function mask_ok(r, tree, chunks, first, count, what)
    local all = math.floor((chunks + 63) / 64)
    local last = first / 64 + count
    if count == 0 or last > all then
        return fail(r, tree, what .. ": the mask does not lie within the message")
    end
    local used = chunks % 64
    if last == all and used ~= 0 then
        local word = r.tvb(r.at - 8, 8):uint64()
        if word:rshift(used) ~= UInt64(0) then
            return fail(r, tree, what .. ": bits of chunks that do not exist")
        end
    end
    return true
end

-- ---- frames -------------------------------------------------------------------------------------

local function frame_ack(r, tree)
    if not has(r, tree, 35, "ACK") then
        return false
    end
    local count = take(r, tree, f.ack_words, 1):uint()
    local notes = take(r, tree, f.ack_notes, 1):uint()
    local flags = r.tvb(r.at, 1)
    local flags_tree = tree:add(f.ack_flags, flags)
    flags_tree:add(f.ack_idle, flags)
    flags_tree:add(f.ack_later, flags)
    flags_tree:add(f.ack_delay_step, flags)
    r.at = r.at + 1
    local largest = u64(take(r, tree, f.ack_largest, 8))
    take(r, tree, f.ack_delay, 4)
    take(r, tree, f.ack_clock, 4)
    take(r, tree, f.ack_ect, 4)
    take(r, tree, f.ack_ce, 4)
    take(r, tree, f.ack_credit, 4)
    take(r, tree, f.ack_open_from, 4)
    if count > 32 or notes > 32 then
        return fail(r, tree, "ACK: a field is out of its range")
    end
    local block = largest / UInt64(64)
    if count > 0 and (largest == UInt64(0) or UInt64(count - 1) > block) then
        return fail(r, tree, "ACK: a word lies below number 0")
    end
    if not has(r, tree, 8 * (count + notes), "ACK") then
        return false
    end
    if count > 0 then
        local above = r.tvb(r.at, 8):uint64()
        local low = (largest % UInt64(64)):tonumber()
        if low < 63 and above:rshift(low + 1) ~= UInt64(0) then
            fail(r, tree, "ACK: bits above the largest number")
        end
    end
    words(r, tree, f.ack_word, count, function(i)
        local first = (block - UInt64(i)) * UInt64(64)
        return string.format(" (packets %s to %s)", tostring(first), tostring(first + UInt64(63)))
    end)
    for _ = 1, notes do
        local note = tree:add(f.note, r.tvb(r.at, 8))
        take(r, note, f.note_msg, 4)
        take(r, note, f.note_received, 4)
    end
    return r.bad == nil, string.format("ACK %s", tostring(largest))
end

local function frame_done(r, tree)
    if not has(r, tree, 23, "DONE") then
        return false
    end
    local status = take(r, tree, f.done_status, 1):uint()
    local count = take(r, tree, f.done_words, 2):uint()
    local msg = take(r, tree, f.done_msg, 4):uint()
    local chunks = take(r, tree, f.done_chunks, 4):uint()
    local received = take(r, tree, f.done_received, 4):uint()
    local refused = take(r, tree, f.done_refused, 4):uint()
    local first = take(r, tree, f.done_first, 4):uint()
    if status > 1 or count > 160 or received > chunks or refused > received or first % 64 ~= 0 then
        return fail(r, tree, "DONE: a field is out of its range")
    end
    if not has(r, tree, 8 * count, "DONE") then
        return false
    end
    words(r, tree, f.done_word, count, bits_of(first))
    local whole = received == chunks or received == 0
    if whole and (count ~= 0 or first ~= 0) then
        return fail(r, tree, "DONE: a mask where none is needed")
    end
    if not whole and not mask_ok(r, tree, chunks, first, count, "DONE") then
        return false
    end
    return true, string.format("DONE %d %s %d/%d", msg, STATUSES[status], received, chunks)
end

local function frame_finish(r, tree)
    if not has(r, tree, 5, "FINISH") then
        return false
    end
    local flags = r.tvb(r.at, 1)
    tree:add(f.finish_flags, flags):add(f.finish_short, flags)
    r.at = r.at + 1
    local msg = take(r, tree, f.finish_msg, 4):uint()
    if flags:uint() > 1 then
        return fail(r, tree, "FINISH: unknown flags")
    end
    return true, string.format("FINISH %d%s", msg, flags:uint() == 1 and " SHORT" or "")
end

local function frame_critical(r, tree)
    if not has(r, tree, 15, "CRITICAL") then
        return false
    end
    local reserved = take(r, tree, f.reserved, 1):uint()
    local count = take(r, tree, f.critical_words, 2):uint()
    local msg = take(r, tree, f.critical_msg, 4):uint()
    local chunks = take(r, tree, f.critical_chunks, 4):uint()
    local first = take(r, tree, f.critical_first, 4):uint()
    if reserved ~= 0 or count > 160 or first % 64 ~= 0 then
        return fail(r, tree, "CRITICAL: a field is out of its range")
    end
    if not has(r, tree, 8 * count, "CRITICAL") then
        return false
    end
    words(r, tree, f.critical_word, count, bits_of(first))
    return mask_ok(r, tree, chunks, first, count, "CRITICAL"), string.format("CRITICAL %d", msg)
end

local function frame_padding(r, tree)
    if not has(r, tree, 2, "PADDING") then
        return false
    end
    local count = take(r, tree, f.padding, 2):uint()
    if not has(r, tree, count, "PADDING") then
        return false
    end
    for i = 0, count - 1 do
        if r.tvb(r.at + i, 1):uint() ~= 0 then
            return fail(r, tree, "PADDING: bytes that are not zero")
        end
    end
    r.at = r.at + count
    return true, "PADDING"
end

local function frame_path(r, tree, kind)
    if not has(r, tree, 8, FRAMES[kind]) then
        return false
    end
    take(r, tree, f.token, 8)
    return true, FRAMES[kind]
end

local function frame_close(r, tree)
    if not has(r, tree, 2, "CLOSE") then
        return false
    end
    local code = take(r, tree, f.close_code, 2):uint()
    if CLOSE_CODES[code] == nil then
        return fail(r, tree, "CLOSE: unknown code")
    end
    return true, "CLOSE " .. CLOSE_CODES[code]
end

local function frame_backlog(r, tree)
    if not has(r, tree, 4, "BACKLOG") then
        return false
    end
    return true, string.format("BACKLOG to %d", take(r, tree, f.backlog_end, 4):uint())
end

-- An acknowledgement beside a chunk.
local function frame_ack_short(r, tree)
    if not has(r, tree, 19, "ACK_SHORT") then
        return false
    end
    local flags = take(r, tree, f.ack_flags, 1):uint()
    local largest = take(r, tree, f.ack_short_largest, 4):uint()
    take(r, tree, f.ack_short_delay, 2)
    take(r, tree, f.ack_short_credit, 2)
    take(r, tree, f.ack_short_open_from, 1)
    take(r, tree, f.ack_short_ce, 1)
    local mask = take(r, tree, f.ack_word, 8)
    if flags % 2 ~= 0 or mask:bitfield(0, 1) == 0 then
        return fail(r, tree, "ACK_SHORT: a field is out of its range")
    end
    return true, string.format("ACK_SHORT %d", largest)
end

-- A whole message beside the chunk of the packet.
local function frame_message(r, tree)
    if not has(r, tree, 23, "MESSAGE") then
        return false
    end
    local priority = take(r, tree, f.message_priority, 1):uint()
    local critical = take(r, tree, f.message_critical, 1):uint()
    local reserved = take(r, tree, f.reserved, 1):uint()
    local msg = take(r, tree, f.message_msg, 4):uint()
    local total = take(r, tree, f.message_total, 4):uint()
    local chunk_elems = take(r, tree, f.message_chunk_elems, 2):uint()
    local elem_bytes = take(r, tree, f.message_elem_bytes, 2):uint()
    take(r, tree, f.message_tag, 8)
    if priority > 7 or critical > 1 or reserved ~= 0 or total == 0 or total > chunk_elems or
        elem_bytes == 0 then
        return fail(r, tree, "MESSAGE: a field is out of its range")
    end
    if not has(r, tree, total * elem_bytes, "MESSAGE") then
        return false
    end
    take(r, tree, f.message_payload, total * elem_bytes)
    return true, string.format("MESSAGE %d", msg)
end

local frame_readers = {
    [1] = frame_ack, [2] = frame_done, [3] = frame_finish, [5] = frame_path, [6] = frame_path,
    [7] = frame_close, [8] = frame_critical, [10] = frame_padding,
    [11] = frame_backlog, [12] = frame_ack_short, [13] = frame_message,
}

-- All frames up to r.stop; appends what they are to info. A type that is not known has no length, so
-- the rest cannot be read either.
local function control(r, tree, info)
    while r.at < r.stop do
        local from = r.at
        local kind = r.tvb(r.at, 1):uint()
        local sub = tree:add(weft, r.tvb(r.at, r.stop - r.at), FRAMES[kind] or "Unknown frame")
        take(r, sub, f.frame, 1)
        if kind == 1 then
            sub:add(f.ack, r.tvb(from, 1)):set_hidden()
        elseif kind == 2 then
            sub:add(f.done, r.tvb(from, 1)):set_hidden()
        end
        local ok, text = true, FRAMES[kind]
        if frame_readers[kind] ~= nil then
            ok, text = frame_readers[kind](r, sub, kind)
        elseif kind ~= 4 then
            ok = fail(r, sub, string.format("Frame of unknown type %d", kind))
        end
        if not ok then
            return false
        end
        sub:set_len(r.at - from)
        info[#info + 1] = text
    end
    return true
end

-- ---- DATA ---------------------------------------------------------------------------------------

local function data(r, tree, info)
    local sub = tree:add(f.data, r.tvb(r.at, r.stop - r.at))
    if not has(r, sub, 32, "DATA header") then
        return false
    end
    local msg = take(r, sub, f.msg, 4):uint()
    local chunk = take(r, sub, f.chunk, 4):uint()
    local total = take(r, sub, f.total, 4):uint()
    local chunk_elems = take(r, sub, f.chunk_elems, 2):uint()
    local elem_bytes = take(r, sub, f.elem_bytes, 2):uint()
    local critical = take(r, sub, f.critical, 1):uint()
    local lost_max = take(r, sub, f.lost_max, 3):uint()
    take(r, sub, f.data_tag, 8)
    take(r, sub, f.data_clock, 4)
    if total == 0 or chunk_elems == 0 or elem_bytes == 0 then
        return fail(r, sub, "DATA: a grid of nothing")
    end
    local chunks = math.floor((total + chunk_elems - 1) / chunk_elems)
    sub:add(f.chunks, chunks):set_generated()
    info[#info + 1] = string.format("DATA %d chunk %d/%d", msg, chunk, chunks)
    if chunk >= chunks or lost_max >= chunks or (critical > chunks and critical ~= MASKED) then
        return fail(r, sub, "DATA: outside its own grid")
    end
    local payload = r.stop - r.at
    local wanted = math.min(chunk_elems, total - chunk * chunk_elems) * elem_bytes
    if payload > 0 then
        take(r, sub, f.payload, payload)
    end
    if r.whole and payload ~= wanted then
        return fail(r, sub, string.format("DATA: %d bytes of payload, the grid says %d", payload,
                                          wanted))
    end
    return true
end

-- The short header: message and grid are those of a DATA packet before it.
local function brief(r, tree, info)
    local sub = tree:add(f.data, r.tvb(r.at, r.stop - r.at))
    if not has(r, sub, 8, "BRIEF header") then
        return false
    end
    local place = r.tvb(r.at, 4)
    local msg, chunk = bit.rshift(place:uint(), 18), bit.band(place:uint(), 0x3ffff)
    sub:add(f.msg, place, msg):append_text(" (low 14 bits)")
    sub:add(f.chunk, place, chunk)
    r.at = r.at + 4
    take(r, sub, f.data_clock, 4)
    info[#info + 1] = string.format("DATA %d chunk %d", msg, chunk)
    local payload = r.stop - r.at
    if payload < 1 then
        return r.whole and fail(r, sub, "BRIEF: no payload")
    end
    take(r, sub, f.payload, payload)
    return true
end

-- ---- connection packets -------------------------------------------------------------------------

local function flags_tree(r, tree)
    local range = r.tvb(r.at, 1)
    local sub = tree:add(f.flags, range)
    local has_data = bit.band(range:uint(), 0x01) ~= 0
    local has_brief = not has_data and bit.band(range:uint(), 0x10) ~= 0
    for _, field in ipairs({ f.key_phase, f.pass_end, f.limited, has_data and f.priority or f.brief,
                             f.has_control, f.has_data }) do
        sub:add(field, range)
    end
    if has_brief then
        sub:add(f.shared, range)
    end
    r.at = r.at + 1
    return range:uint()
end

local function sealed(r, tree, info)
    if r.stop - TAG_BYTES > r.at then
        take(r, tree, f.encrypted, r.stop - TAG_BYTES - r.at)
    else
        fail(r, tree, "SEAL: nothing is sealed in it")
    end
    if r.stop - r.at >= TAG_BYTES then
        take(r, tree, f.tag, TAG_BYTES)
    end
    info[#info + 1] = "encrypted"
end

local function connection_packet(r, tree, class, info)
    -- A chunk with the short header, and nothing else, has but half of its number.
    local short = r.tvb:len() >= 12 and bit.band(r.tvb(1, 1):uint(), 0x13) == 0x10
    if not has(r, tree, short and 12 or 16, "Header") then
        return
    end
    r.at = 1
    local flags = flags_tree(r, tree)
    take(r, tree, f.data_count, 2)
    take(r, tree, f.connection, 4)
    local number = u64(take(r, tree, f.number, short and 4 or 8))
    info[#info + 1] = "#" .. tostring(number)
    local has_control = bit.band(flags, 0x02) ~= 0
    local has_data = bit.band(flags, 0x01) ~= 0
    local has_brief = not has_data and bit.band(flags, 0x10) ~= 0
    if not has_control and not has_data and not has_brief then
        fail(r, tree, "Neither CONTROL nor DATA")
        return
    end
    if not has_data and bit.band(flags, has_brief and 0x08 or 0x7c) ~= 0 then
        fail(r, tree, "Flags of DATA without DATA")
        return
    end
    if class == 2 then
        sealed(r, tree, info)
        return
    end
    local stop = r.stop
    if class == 1 and r.whole then
        if not has(r, tree, TAG_BYTES, "AUTH") then
            return
        end
        stop = r.stop - TAG_BYTES
        tree:add(f.tag, r.tvb(stop, TAG_BYTES))
    end
    r.stop = stop
    if has_control then
        if not has(r, tree, 2, "Control block") then
            return
        end
        local count = take(r, tree, f.control_bytes, 2):uint()
        if count == 0 then
            fail(r, tree, "An empty control block")
            return
        end
        if not has(r, tree, count, "Control block") then
            return
        end
        r.stop = r.at + count
        if not control(r, tree, info) then
            return
        end
        r.stop = stop
    end
    if has_data then
        data(r, tree, info)
    elseif has_brief then
        brief(r, tree, info)
    elseif r.at ~= r.stop then
        fail(r, tree, "Bytes behind the control block, and no DATA")
    end
end

-- ---- handshake ----------------------------------------------------------------------------------

local function zero(range)
    for i = 0, range:len() - 1 do
        if range(i, 1):uint() ~= 0 then
            return false
        end
    end
    return true
end

-- {field, bytes} in order, behind the first byte.
local LAYOUTS = {
    [8] = { { f.mode, 1 }, { f.key_id, 2 }, { f.connection, 4 }, { f.incarnation, 8 },
            { f.name, 8 }, { f.open_from, 8 }, { f.clock, 4 }, { f.unscheduled, 2 },
            { f.packet_max, 2 }, { f.cookie, 16 }, { f.ephemeral, 32 }, { f.tag, 16 },
            { f.mac, 16 } },
    [9] = { { f.mode, 1 }, { f.key_id, 2 }, { f.connection, 4 }, { f.own_connection, 4 },
            { f.clock, 4 }, { f.incarnation, 8 }, { f.name, 8 }, { f.open_from, 8 },
            { f.unscheduled, 2 }, { f.packet_max, 2 }, { f.reserved, 4 }, { f.ephemeral, 32 },
            { f.tag, 16 }, { f.mac, 16 } },
    [10] = { { f.reserved, 3 }, { f.connection, 4 }, { f.cookie, 16 }, { f.mac, 16 } },
    [11] = { { f.reserved, 1 }, { f.incarnation_high, 2 }, { f.connection, 4 }, { f.number, 4 },
             { f.incarnation_middle, 4 }, { f.mac, 16 } },
    [12] = { { f.refusal, 1 }, { f.refused_mode, 1 }, { f.reserved, 1 }, { f.connection, 4 } },
}

local function handshake(r, tree, class, info, length)
    if length ~= LENGTHS[class] then
        fail(r, tree, string.format("%s of %d bytes", CLASSES[class], length))
    end
    r.at = 1
    for _, row in ipairs(LAYOUTS[class]) do
        if r.at + row[2] > r.stop then
            break
        end
        local range = take(r, tree, row[1], row[2])
        if row[1] == f.reserved and not zero(range) then
            fail(r, tree, "Reserved bytes are not zero")
        elseif row[1] == f.mode then
            if MODES[range:uint()] == nil then
                fail(r, tree, "Unknown mode")
            end
            info[#info + 1] = "mode " .. (MODES[range:uint()] or "unknown")
        elseif row[1] == f.refusal then
            info[#info + 1] = REFUSALS[range:uint()] or "for an unknown reason"
        elseif row[1] == f.own_connection or row[1] == f.connection then
            info[#info + 1] = string.format("id %08x", range:uint())
        end
    end
end

-- ---- packets of an aggregation box --------------------------------------------------------------

-- Values and the number of a block are in the byte order of the workers: little-endian.
local function agg_values(r, tree, count, is_real)
    for _ = 1, count do
        tree:add_le(is_real and f.agg_real or f.agg_value, r.tvb(r.at, 4))
        r.at = r.at + 4
    end
end

local function agg_blocks(r, tree, count, is_real)
    for _ = 1, count do
        local row = tree:add(f.agg_row, r.tvb(r.at, AGG_ROW))
        row:add_le(f.agg_block, r.tvb(r.at, 2))
        row:append_text(" " .. r.tvb(r.at, 2):le_uint())
        row:add(f.agg_exponent, r.tvb(r.at + 2, 1))
        row:add(f.reserved, r.tvb(r.at + 3, 1))
        if r.tvb(r.at + 3, 1):uint() ~= 0 then
            fail(r, row, "ROWS: reserved bytes are not zero")
        end
        r.at = r.at + 4
        agg_values(r, row, 8, is_real)
    end
end

local function agg_window(r, tree, from)
    for _, field in ipairs({ f.agg_added, f.agg_refused }) do
        words(r, tree, field, 4, function(i)
            local first = (from + 64 * i) % 2 ^ 32
            return string.format(" (numbers %.0f to %.0f)", first, (first + 63) % 2 ^ 32)
        end)
    end
end

-- Bytes of the payload, or nil where a field does not match the kind.
local function agg_payload(h)
    if h.kind == ROWS then
        local ok = h.flags <= 1 and h.exponent == 0 and h.next == 0 and h.count >= 1 and
                   h.count <= 39 and (h.number - h.from) % 2 ^ 32 <= 192
        return ok and h.count * AGG_ROW or nil
    elseif h.kind == BOX_ACK then
        local ok = h.flags == 0 and h.exponent == 0 and h.next == 0 and h.count == 0 and
                   h.from % 64 == 0
        return ok and AGG_ACK or nil
    end
    local form = h.kind == SUM and bit.band(h.flags, 0xfd) or h.flags
    local ok = (form == 0 or form == 1 or form == 4) and h.from == 0 and h.exponent >= -126 and
               (form == 4 and h.next >= -126 or h.next == 0) and h.count >= 8 and
               h.count <= 352 and h.count % 8 == 0
    return ok and 4 * h.count or nil
end

local function agg_packet(r, tree, info, length)
    if not has(r, tree, AGG_HEADER, "Header") then
        return
    end
    r.at = 1
    local h = { kind = take(r, tree, f.agg_kind, 1):uint() }
    if KINDS[h.kind] == nil then
        fail(r, tree, "An unknown kind")
        return
    end
    local is_dense = h.kind == DENSE or h.kind == SUM
    local flags = r.tvb(r.at, 1)
    local sub = tree:add(f.agg_flags, flags)
    for _, field in ipairs({ f.agg_float32, f.agg_direct, f.agg_agreed }) do
        sub:add(field, flags)
    end
    h.flags = flags:uint()
    r.at = r.at + 1
    h.exponent = take(r, tree, f.agg_exponent, 1):int()
    take(r, tree, f.agg_job, 2)
    local member = take(r, tree, f.agg_member, 2):uint()
    local place = take(r, tree, is_dense and f.agg_slot or f.agg_bank, 4):uint()
    take(r, tree, f.agg_epoch, 4)
    h.number = take(r, tree, is_dense and f.agg_round or f.agg_number, 4):uint()
    h.from = take(r, tree, h.kind == BOX_ACK and f.agg_base or h.kind == ROWS and f.agg_from or
                  f.reserved, 4):uint()
    h.count = take(r, tree, f.agg_count, 2):uint()
    h.next = take(r, tree, f.agg_next, 1):int()
    local reserved = take(r, tree, f.reserved, 5)
    info[#info + 1] = string.format("%s member %d, %s %d, %s %d", KINDS[h.kind], member,
                                    is_dense and "slot" or "bank", place,
                                    is_dense and "round" or "number", h.number)
    if bit.band(h.flags, 0x02) ~= 0 then
        info[#info + 1] = "DIRECT"
    end
    local bytes = agg_payload(h)
    if bytes == nil or not zero(reserved) then
        fail(r, tree, KINDS[h.kind] .. ": a field is out of its range")
    elseif length ~= AGG_HEADER + bytes then
        fail(r, tree, string.format("%s: %d bytes of payload, the header says %d", KINDS[h.kind],
                                    length - AGG_HEADER, bytes))
    elseif not has(r, tree, bytes, KINDS[h.kind]) then
        return
    elseif h.kind == ROWS then
        agg_blocks(r, tree, h.count, h.flags == 1)
    elseif h.kind == BOX_ACK then
        agg_window(r, tree, h.from)
    elseif bit.band(h.flags, 0x02) == 0 then
        agg_values(r, tree, h.count, bit.band(h.flags, 0x01) ~= 0)
    end
end

-- ---- the packet ---------------------------------------------------------------------------------

-- Bytes of the first packet of a burst, or nil. A host that sends shows its capture what it hands to
-- the card (GSO), packets of one connection in a row; the card cuts them. Only packets of DATA alone
-- are sent so, and their grid says how long they are; one with the short header ends where the next
-- packet's connection id and number stand. Of SEAL nobody can tell.
local function burst_brief(tvb, class)
    local raw = tvb:raw()
    local number = { raw:byte(9, 12) }
    for i = 4, 1, -1 do
        number[i] = (number[i] + 1) % 256
        if number[i] ~= 0 then
            break
        end
    end
    local tag_bytes = class == VERSION * 16 + 1 and TAG_BYTES or 0
    local at = raw:find(raw:sub(5, 8) .. string.char(unpack(number)), 20 + 1 + tag_bytes + 5, true)
    if at == nil or raw:byte(at - 4) ~= class then
        return nil
    end
    return at - 5
end

local function burst(tvb)
    local class = tvb(0, 1):uint()
    if tvb:len() < 48 or (class ~= VERSION * 16 and class ~= VERSION * 16 + 1) then
        return nil
    end
    local flags = tvb(1, 1):uint()
    if bit.band(flags, 0x1f) == 0x10 then
        return burst_brief(tvb, class)
    elseif bit.band(flags, 3) ~= 1 then
        return nil
    end
    local chunk, total = tvb(20, 4):uint(), tvb(24, 4):uint()
    local elems = math.min(tvb(28, 2):uint(), total - chunk * tvb(28, 2):uint())
    local bytes = 48 + elems * tvb(30, 2):uint() + (class == VERSION * 16 + 1 and TAG_BYTES or 0)
    if elems < 1 or tvb:len() < bytes + 24 or tvb(bytes, 1):uint() ~= class or
       tvb(bytes + 4, 4):uint() ~= tvb(4, 4):uint() then
        return nil
    end
    return bytes
end

local function one_packet(tvb, length, root)
    local tree = root:add(weft, tvb())
    local first = tvb(0, 1)
    tree:add(f.version, first)
    tree:add(f.class, first)
    local version = bit.rshift(first:uint(), 4)
    local class = bit.band(first:uint(), 15)
    local info = { CLASSES[class] or "reserved class" }
    local whole = tvb:len() == length
    if not whole then
        tree:add_proto_expert_info(cut)
    end
    local r = reader(tvb, whole)
    if version ~= VERSION and class ~= 12 then
        tree:add_proto_expert_info(other_version)
        info = { string.format("version %d", version) }
    elseif CLASSES[class] == nil then
        fail(r, tree, "A reserved class")
    elseif class <= 2 then
        connection_packet(r, tree, class, info)
    elseif class == 13 then
        agg_packet(r, tree, info, length)
    else
        handshake(r, tree, class, info, length)
    end
    if r.bad then
        info[#info + 1] = "[malformed: " .. r.bad .. "]"
    end
    tree:append_text(": " .. table.concat(info, ", "))
    return table.concat(info, ", ")
end

function weft.dissector(tvb, pinfo, root)
    local length = tvb:reported_len()
    if tvb:len() == 0 then
        return 0
    end
    pinfo.cols.protocol = "weft"
    local rest = tvb
    local packets = 1
    local bytes = burst(rest)
    while bytes ~= nil do
        one_packet(rest(0, bytes):tvb(), bytes, root)
        rest = rest(bytes):tvb()
        packets = packets + 1
        bytes = burst(rest)
    end
    local last = one_packet(rest, packets == 1 and length or rest:len(), root)
    pinfo.cols.info = packets == 1 and last or
                      string.format("%d packets, the last: %s", packets, last)
    return length
end

-- Strict, for it sees the packets of everybody: version 2, a class, and what that class requires.
local function looks_like_weft(tvb)
    local length = tvb:reported_len()
    if length < 8 or tvb:len() < 8 then
        return false
    end
    local first = tvb(0, 1):uint()
    local class = bit.band(first, 15)
    if bit.rshift(first, 4) ~= VERSION or CLASSES[class] == nil then
        return false
    end
    if class == 13 then
        return length >= AGG_HEADER + AGG_ROW - 4 and tvb:len() >= AGG_HEADER and
               KINDS[tvb(1, 1):uint()] ~= nil and tvb(6, 2):uint() < 64 and zero(tvb(27, 5))
    elseif class > 2 then
        return length == LENGTHS[class] and (class < 10 or class == 12 or tvb(1, 3):uint() == 0)
    end
    local flags = tvb(1, 1):uint()
    -- A packet number below 2^48 leaves two zero bytes, where all of it is there; flags of DATA are
    -- zero without DATA.
    local of_message = bit.band(flags, 0x7c)
    local is_brief = bit.band(flags, 0x1d) == 0x10
    local is_short = bit.band(flags, 0x1f) == 0x10
    return length >= 19 and tvb:len() >= 16 and (bit.band(flags, 0x03) ~= 0 or is_brief) and
           (is_short or tvb(8, 2):uint() == 0) and
           (bit.band(flags, 0x01) ~= 0 or is_brief or of_message == 0)
end

weft:register_heuristic("udp", function(tvb, pinfo, root)
    if not looks_like_weft(tvb) then
        return false
    end
    weft.dissector(tvb, pinfo, root)
    return true
end)

local udp = DissectorTable.get("udp.port")
local registered = weft.prefs.ports
udp:add(registered, weft)

function weft.prefs_changed()
    udp:remove(registered, weft)
    registered = weft.prefs.ports
    udp:add(registered, weft)
end
