/* device: the guard (current device, streams, events), generators, pinned host memory and the hooks: what PyTorch asks a device for besides operators.
 *
 * Each device is one queue in order. A stream is a label on it; an event is a position in it. Recording an event costs nothing and changes no program, unless it is to
 * measure time: then a program ends there. Asking is never waiting: what is recorded is handed over, and the answer is what is true now. */
#ifndef TERN_TORCH_DEVICE_H
#define TERN_TORCH_DEVICE_H
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/core/Generator.h>
#include <ATen/core/GeneratorForPrivateuseone.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>
#include <map>
#include "bridge.h"

namespace tern {

/* ---- current device, streams, events ---- */
inline thread_local c10::StreamId current_streams[kMaxDevices] = {};

/* NULL where the device is not open: then there is nothing to wait for. */
inline tern_device *device_if_open(c10::DeviceIndex index) { return open_devices[device_index(index)].load(std::memory_order_acquire); }

inline void synchronize(c10::DeviceIndex index) {
  if (tern_device *device = device_if_open(index)) wait([&] { return tern_device_synchronize(device); });
}

struct Event {
  bool timing;
  tern_device *device = nullptr;
  uint64_t position = 0;
  tern_timestamp *timestamp = nullptr; /* owned; timing events only */

  explicit Event(bool with_timing) : timing(with_timing) {}
  ~Event() { tern_timestamp_release(timestamp); }
  Event(const Event &) = delete;

  void record(c10::DeviceIndex index) {
    if (timing) {
      tern_device *on = device_at(index);
      tern_timestamp *now = nullptr;
      check(tern_timestamp_new(on, &now));
      tern_timestamp_release(timestamp);
      device = on, timestamp = now, position = tern_timestamp_position(now);
    } else {
      device = device_if_open(index);
      position = device ? tern_device_position(device) : 0;
    }
  }
  bool is_reached() const {
    bool reached = true;
    if (device) check(tern_device_has_reached(device, position, &reached));
    return reached;
  }
  void synchronize() const {
    if (device) wait([&] { return tern_device_wait_for(device, position); });
  }
};

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kTern; }
  c10::Device exchangeDevice(c10::Device device) const override {
    c10::Device old = getDevice();
    setDevice(device);
    return old;
  }
  c10::Device getDevice() const override { return tern_device_of(current_device_index); }
  void setDevice(c10::Device device) const override {
    if (device.index() != current_device_index) current_device_index = device_index(device.index());
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.index() >= 0) current_device_index = device.index();
  }
  c10::DeviceIndex deviceCount() const noexcept override { return (c10::DeviceIndex)device_count(); }
  /* What can be allocated and converted to: everything but quantised numbers. */
  c10::DeviceCapability getDeviceCapability(c10::Device) const override {
    c10::DeviceCapability all;
    auto &types = all.capability_data.supported_scalar_types;
    types.has_QInt8 = types.has_QUInt8 = types.has_QInt32 = types.has_QUInt4x2 = types.has_QUInt2x4 = 0;
    return all;
  }

  c10::Stream getStream(c10::Device device) const override {
    c10::DeviceIndex index = device_index(device.index());
    return c10::Stream(c10::Stream::UNSAFE, tern_device_of(index), current_streams[index]);
  }
  c10::Stream getDefaultStream(c10::Device device) const override { return c10::Stream(c10::Stream::DEFAULT, tern_device_of(device_index(device.index()))); }
  c10::Stream getNewStream(c10::Device device, int) const override {
    static std::atomic<c10::StreamId> next{1};
    return c10::Stream(c10::Stream::UNSAFE, tern_device_of(device_index(device.index())), next++);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override { return getNewStream(device, 0); }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    c10::Stream old = getStream(stream.device());
    current_streams[device_index(stream.device_index())] = stream.id();
    return old;
  }
  bool queryStream(const c10::Stream &stream) const override {
    Event here(false);
    here.record(stream.device_index());
    return here.is_reached();
  }
  void synchronizeStream(const c10::Stream &stream) const override { synchronize(stream.device_index()); }
  void synchronizeDevice(c10::DeviceIndex index) const override { synchronize(index); }
  void recordDataPtrOnStream(const c10::DataPtr &, const c10::Stream &) const override {}

  void record(void **event, const c10::Stream &stream, const c10::DeviceIndex index, const c10::EventFlag flag) const override {
    require(index < 0 || index == stream.device_index(), TERN_INVALID_ARGUMENT, "an event of tern:", (int)index, " cannot be recorded on a stream of tern:", (int)stream.device_index());
    if (!*event) *event = new Event(flag == c10::EventFlag::BACKEND_DEFAULT);
    ((Event *)*event)->record(stream.device_index());
  }
  void block(void *, const c10::Stream &) const override {} /* one queue: what is recorded later runs later */
  bool queryEvent(void *event) const override { return !event || ((Event *)event)->is_reached(); }
  void synchronizeEvent(void *event) const override {
    if (event) ((Event *)event)->synchronize();
  }
  void destroyEvent(void *event, const c10::DeviceIndex) const noexcept override { delete (Event *)event; }
  double elapsedTime(void *first, void *second, const c10::DeviceIndex) const override {
    auto *a = (Event *)first, *b = (Event *)second;
    require(a && b && a->timestamp && b->timestamp, TERN_INVALID_ARGUMENT, "elapsed_time needs two recorded events made with enable_timing=True");
    return (tern_timestamp_seconds(b->timestamp) - tern_timestamp_seconds(a->timestamp)) * 1e3;
  }
};

/* ---- random numbers ---- */
/* While true, random operators draw from PyTorch's CPU stream: torch.tern.rng("cpu"). */
inline std::atomic<bool> draws_on_host{false};

/* A generator is a Philox stream: a seed and an offset. The default generator of a device is the device's own stream.
 *
 * Each has a twin, a CPU generator with the same seed, which is drawn from, saved and restored in its place while draws_on_host: so a run on tern can have the very
 * numbers of a run on the CPU. The default generators' twin is PyTorch's default CPU generator. */
struct Generator final : c10::GeneratorImpl {
  bool is_default;
  mutable tern_stream own{(int64_t)c10::default_rng_seed_val, 0};

  Generator(c10::DeviceIndex index, bool of_device) : GeneratorImpl(tern_device_of(index), kTernKeys), is_default(of_device) {}

  at::Generator twin() const {
    if (is_default) return at::detail::getDefaultCPUGenerator();
    std::lock_guard<std::mutex> guard(twin_lock);
    if (!own_twin.defined()) own_twin = at::detail::createCPUGenerator(get().first);
    return own_twin;
  }

  template <class F>
  auto with_twin(F &&function) const {
    at::Generator cpu = twin();
    std::lock_guard<std::mutex> guard(cpu.mutex());
    return function(cpu);
  }

  std::pair<uint64_t, uint64_t> get() const {
    int64_t seed, offset;
    if (!is_default) {
      tern_stream_get(&own, &seed, &offset);
      return {(uint64_t)seed, (uint64_t)offset};
    }
    tern_device *device = open_devices[device_.index()].load(std::memory_order_acquire);
    const PendingSeed &pending = pending_seeds[device_.index()];
    if (!device) return {pending.seed, pending.offset};
    tern_stream_get(tern_device_stream(device), &seed, &offset);
    return {(uint64_t)seed, (uint64_t)offset};
  }
  /* Seeding opens no device: torch.manual_seed must work, and be quick, where the device is never used. */
  void set(uint64_t seed, uint64_t offset) {
    if (!is_default) return tern_stream_set(&own, (int64_t)seed, (int64_t)offset);
    if (tern_device *device = open_devices[device_.index()].load(std::memory_order_acquire))
      return tern_stream_set(tern_device_stream(device), (int64_t)seed, (int64_t)offset);
    PendingSeed &pending = pending_seeds[device_.index()];
    pending.seed = seed, pending.offset = offset;
    pending.set = true;
  }

  void set_current_seed(uint64_t seed) override {
    set(seed, 0);
    if (is_default && !draws_on_host.load()) return; /* torch.manual_seed seeds the CPU itself */
    with_twin([&](at::Generator cpu) { cpu.set_current_seed(seed); });
  }
  void set_offset(uint64_t offset) override { set(get().first, offset); }
  uint64_t get_offset() const override { return get().second; }
  uint64_t current_seed() const override { return get().first; }
  uint64_t seed() override {
    uint64_t seed = c10::detail::getNonDeterministicRandom();
    set_current_seed(seed);
    return seed;
  }
  /* The state is 16 bytes on the CPU: seed, offset; or the twin's. */
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    if (draws_on_host.load()) return with_twin([](const at::Generator &cpu) { return cpu.get_state().getIntrusivePtr(); });
    auto state = at::detail::empty_cpu({16}, at::kByte);
    auto [seed, offset] = get();
    memcpy(state.mutable_data_ptr(), &seed, 8);
    memcpy((char *)state.mutable_data_ptr() + 8, &offset, 8);
    return state.getIntrusivePtr();
  }
  void set_state(const c10::TensorImpl &state) override {
    require(state.device_type() == c10::kCPU && state.dtype() == at::kByte && state.is_contiguous() && (state.numel() == 16 || state.numel() > 64),
            TERN_INVALID_ARGUMENT, "the state of a tern generator is a CPU tensor of bytes, as get_state() gives it: 16, or those of a CPU generator");
    if (state.numel() != 16)
      return with_twin([&](at::Generator cpu) {
        cpu.set_state(at::Tensor(c10::intrusive_ptr<c10::TensorImpl>::reclaim_copy(const_cast<c10::TensorImpl *>(&state))));
      });
    uint64_t words[2];
    memcpy(words, state.data(), 16);
    set(words[0], words[1]);
  }
  Generator *clone_impl() const override {
    auto *copy = new Generator(device_.index(), false);
    auto [seed, offset] = get();
    copy->own = {(int64_t)seed, (int64_t)offset};
    copy->own_twin = with_twin([](const at::Generator &cpu) { return cpu.clone(); });
    return copy;
  }

 private:
  mutable std::mutex twin_lock; /* guards the making of it; its own mutex guards its state */
  mutable at::Generator own_twin;
};

inline Generator &tern_generator(const at::Generator &generator) {
  TORCH_CHECK(generator.device().type() == kTern, "Expected a 'tern' device type for generator but found '", generator.device().type(), "'");
  return *static_cast<Generator *>(generator.unsafeGetGeneratorImpl());
}

/* ---- pinned host memory ---- */
/* Copies snapshot their source, so pinned memory is plain memory; but what says is_pinned() must be what pin_memory() made. */
struct PinnedAllocator final : at::HostAllocator {
  static inline std::mutex lock;
  static inline std::map<const char *, size_t> ranges; /* start -> bytes */
  static inline at::HostStats stats;

  static void release(void *start) {
    {
      std::lock_guard<std::mutex> guard(lock);
      auto range = ranges.find((const char *)start);
      for (auto *bytes : {&stats.active_bytes, &stats.allocated_bytes}) bytes->decrease(range->second);
      for (auto *requests : {&stats.active_requests, &stats.allocations}) requests->decrease(1);
      ranges.erase(range);
    }
    free(start);
  }
  c10::DataPtr allocate(size_t bytes) override {
    void *start = nullptr;
    if (posix_memalign(&start, 64, bytes ? bytes : 1)) require(false, TERN_OUT_OF_MEMORY, "the host has no memory for ", bytes, " pinned bytes");
    std::lock_guard<std::mutex> guard(lock);
    ranges.emplace((const char *)start, bytes ? bytes : 1);
    for (auto *figure : {&stats.active_bytes, &stats.allocated_bytes}) figure->increase(bytes ? bytes : 1);
    for (auto *requests : {&stats.active_requests, &stats.allocations}) requests->increase(1);
    return {start, start, &release, c10::kCPU};
  }
  static bool contains(const void *address) {
    std::lock_guard<std::mutex> guard(lock);
    auto next = ranges.upper_bound((const char *)address);
    if (next == ranges.begin()) return false;
    auto range = std::prev(next);
    return (const char *)address < range->first + range->second;
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void *to, const void *from, size_t bytes) const override { memcpy(to, from, bytes); }

  /* What torch.accelerator.empty_host_cache() and its kin ask: nothing is kept for reuse, and no copy is under way that an event would have to guard. */
  bool record_event(void *address, void *, c10::Stream) override { return contains(address); }
  void empty_cache() override {}
  at::HostStats get_stats() override {
    std::lock_guard<std::mutex> guard(lock);
    return stats;
  }
  void reset_accumulated_stats() override {
    std::lock_guard<std::mutex> guard(lock);
    for (auto *figure : figures()) figure->reset_accumulated();
  }
  void reset_peak_stats() override {
    std::lock_guard<std::mutex> guard(lock);
    for (auto *figure : figures()) figure->reset_peak();
  }

 private:
  static std::array<c10::CachingAllocator::Stat *, 4> figures() { return {&stats.active_bytes, &stats.allocated_bytes, &stats.active_requests, &stats.allocations}; }
};
inline PinnedAllocator pinned_allocator;

/* ---- hooks ---- */
struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  void init() const override {} /* devices open on first use */
  bool isAvailable() const override { return device_count() > 0; }
  bool hasPrimaryContext(c10::DeviceIndex index) const override { return open_devices[device_index(index)].load() != nullptr; }
  c10::DeviceIndex deviceCount() const override { return (c10::DeviceIndex)device_count(); }
  void setCurrentDevice(c10::DeviceIndex index) const override { current_device_index = device_index(index); }
  c10::DeviceIndex getCurrentDevice() const override { return current_device_index; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    c10::DeviceIndex old = current_device_index;
    current_device_index = device_index(index);
    return old;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override { return exchangeDevice(index); }
  at::Device getDeviceFromPtr(void *) const override { return tern_device_of(current_device_index); }

  const at::Generator &getDefaultGenerator(c10::DeviceIndex index) const override {
    static std::array<at::Generator, kMaxDevices> generators;
    static std::mutex lock;
    index = device_index(index);
    std::lock_guard<std::mutex> guard(lock);
    at::Generator &generator = generators[(size_t)index];
    if (!generator.defined()) generator = at::make_generator<Generator>(index, true);
    return generator;
  }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override { return at::make_generator<Generator>(device_index(index), false); }

  bool isPinnedPtr(const void *data) const override { return PinnedAllocator::contains(data); }
  at::Allocator *getPinnedMemoryAllocator() const override { return &pinned_allocator; }
  void resizePrivateUse1Bytes(const c10::Storage &storage, size_t bytes) const override { storage_resize(storage.unsafeGetStorageImpl(), bytes); }
};

/* PyTorch has no way to ask a device's hooks for its default generator from Python; an operator may return one. */
inline at::Generator default_generator(int64_t index) { return at::detail::getPrivateUse1Hooks().getDefaultGenerator((c10::DeviceIndex)index); }

inline void register_device() {
  static Guard guard;
  c10::impl::registerDeviceGuard(kTern, &guard);
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  c10::SetAllocator(kTern, &allocator);
  at::setHostAllocator(kTern, &pinned_allocator);
  auto *own = new torch::Library(torch::Library::DEF, "tern", std::nullopt, __FILE__, __LINE__);
  own->def("default_generator(int index) -> Generator?", TORCH_FN(default_generator));
}

}  // namespace tern
#endif
