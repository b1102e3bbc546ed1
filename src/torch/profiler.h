/* profiler: torch.profiler's way to the device: each kernel that ran, with the operators fused in it and the user's line, for its tables and the Chrome trace.
 *
 * PyTorch hands our factory to Kineto (PrivateUse1ProfilerRegistry), which opens a session for each profile that includes ProfilerActivity.PrivateUse1. A session
 * watches the devices (tern_watch) and afterwards turns what it saw into Kineto's activities. Lines are resolved then, by a thread that may hold the GIL. */
#ifndef TERN_TORCH_PROFILER_H
#define TERN_TORCH_PROFILER_H
#define USE_KINETO
#include <libkineto.h>
#include <torch/csrc/profiler/standalone/privateuse1_profiler.h>
#include "bridge.h"

namespace tern {

struct KernelSeen {
  int device;
  double start, end;
  const char *what;
  std::vector<const char *> operations;
  std::vector<uint32_t> lines;
};

/* What the session that is open has seen. */
struct KernelsSeen {
  std::mutex lock;
  std::vector<KernelSeen> list;
};
inline KernelsSeen kernels_seen;

/* C calls this from the thread that ran the kernel. */
inline void see_kernel(const tern_kernel_event *event) noexcept {
  try {
    KernelSeen seen{event->device, event->start, event->end, event->what, {event->operations, event->operations + event->n_operations}, {event->lines, event->lines + event->n_operations}};
    std::lock_guard<std::mutex> guard(kernels_seen.lock);
    kernels_seen.list.push_back(std::move(seen));
  } catch (const std::bad_alloc &) { /* a profile without this kernel, rather than a program without memory */
  }
}

/* "aten::add.Tensor" -> "add" */
inline std::string short_name(const char *operation) {
  const char *colon = strrchr(operation, ':'), *start = colon ? colon + 1 : operation, *dot = strchr(start, '.');
  return dot ? std::string(start, dot) : std::string(start);
}

/* "/home/me/train.py:12 (step)" -> "train.py:12" */
inline std::string short_line(const std::string &line) {
  size_t end = line.rfind(" ("), folder = line.rfind('/', end);
  size_t start = folder == std::string::npos ? 0 : folder + 1;
  return line.substr(start, end == std::string::npos ? end : end - start);
}

class ProfilerSession final : public libkineto::IActivityProfilerSession {
  /* Kineto's times are nanoseconds of the system clock; the devices' are seconds of the monotonic one. */
  static int64_t wall(double seconds) {
    static const int64_t offset = std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count() - (int64_t)(tern_now() * 1e9);
    return (int64_t)(seconds * 1e9) + offset;
  }
  std::vector<KernelSeen> kernels;
  std::unique_ptr<libkineto::CpuTraceBuffer> buffer;

 public:
  void start() override {
    status_ = libkineto::TraceStatus::RECORDING;
    std::lock_guard<std::mutex> guard(kernels_seen.lock);
    kernels_seen.list.clear();
    tern_watch(see_kernel);
  }
  /* What the profiled lines recorded and nobody has read yet belongs to the profile. */
  void stop() override {
    wait([] { return tern_error_free(tern_synchronize_all()), tern_status(nullptr); }); /* an error is for whoever reads */
    tern_watch(nullptr);
    std::lock_guard<std::mutex> guard(kernels_seen.lock);
    kernels.swap(kernels_seen.list);
    kernels_seen.list.clear();
    status_ = libkineto::TraceStatus::PROCESSING;
  }
  std::vector<std::string> errors() override { return {}; }

  void processTrace(libkineto::ActivityLogger &logger) override {
    buffer = std::make_unique<libkineto::CpuTraceBuffer>();
    buffer->gpuOpCount = (int)kernels.size();
    buffer->span = libkineto::TraceSpan(kernels.empty() ? 0 : wall(kernels.front().start), kernels.empty() ? 0 : wall(kernels.back().end), "tern");
    int32_t number = 0;
    for (const KernelSeen &kernel : kernels) {
      constexpr size_t most = 5;
      std::string name, all, lines, last;
      for (size_t i = 0; i < kernel.operations.size(); i++) {
        std::string operation = short_name(kernel.operations[i]), line = line_text(kernel.lines[i]);
        if (i < most) name += (i ? ", " : "") + operation;
        all += (i ? ", " : "") + std::string(kernel.operations[i]);
        if (!line.empty() && line != last) lines += (lines.empty() ? "" : "; ") + line, last = line;
      }
      if (kernel.operations.size() > most) name += c10::str(", +", kernel.operations.size() - most);
      name = c10::str("tern::", kernel.what, "(", name, ")", last.empty() ? "" : " " + short_line(last));
      buffer->emplace_activity(buffer->span, libkineto::ActivityType::CONCURRENT_KERNEL, name);
      libkineto::GenericTraceActivity &activity = *buffer->activities.back();
      activity.startTime = wall(kernel.start), activity.endTime = wall(kernel.end);
      activity.id = ++number, activity.device = kernel.device;
      activity.addMetadataQuoted("operators", all);
      activity.addMetadataQuoted("lines", lines);
      activity.log(logger);
    }
  }
  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override { return std::make_unique<libkineto::DeviceInfo>(libkineto::DeviceInfo{0, 5000000, "tern", "tern:0"}); }
  std::vector<libkineto::ResourceInfo> getResourceInfos() override { return {{0, 0, 0, "queue"}}; }
  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override { return std::move(buffer); }
};

class Profiler final : public libkineto::IActivityProfiler {
  std::string own_name = "tern";
  std::set<libkineto::ActivityType> types{libkineto::ActivityType::CONCURRENT_KERNEL, libkineto::ActivityType::PRIVATEUSE1_RUNTIME};

 public:
  const std::string &name() const override { return own_name; }
  const std::set<libkineto::ActivityType> &availableActivities() const override { return types; }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(const std::set<libkineto::ActivityType> &wanted, const libkineto::Config &) override {
    if (!wanted.count(libkineto::ActivityType::CONCURRENT_KERNEL)) return nullptr;
    return std::make_unique<ProfilerSession>();
  }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(int64_t, int64_t, const std::set<libkineto::ActivityType> &wanted, const libkineto::Config &config) override {
    return configure(wanted, config);
  }
};

inline void register_profiler() {
  torch::profiler::impl::PrivateUse1ProfilerRegistry::instance().registerFactory([]() -> std::unique_ptr<libkineto::IActivityProfiler> { return std::make_unique<Profiler>(); });
}

}  // namespace tern
#endif
