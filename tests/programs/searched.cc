// A C++ program in which one method of one class is costly. Virtual functions of two others and a
// template call it; the call from `Scene::cast_shadows` has far more work. Prints `ready`; ends on
// SIGTERM.
#include "work.h"

#include <cstdio>
#include <memory>
#include <stdexcept>
#include <vector>

#define NOINLINE __attribute__((noinline, noclone, noipa))

static volatile long sink;

struct Mesh {
    NOINLINE long intersect(long rays) const
    {
        for (long i = 0; i < rays; i++)
            sink = sink + i;
        // Sometimes it leaves by an exception.
        if (rays == 7)
            throw std::runtime_error("no ray");
        return sink;
    }
};

struct Pass {
    virtual ~Pass() = default;
    virtual void apply(const Mesh &mesh) = 0;
};

struct Outline : Pass {
    long turns = 0;

    NOINLINE void apply(const Mesh &mesh) override
    {
        try {
            mesh.intersect(++turns % 64 ? 8 : 7);
        } catch (const std::exception &) {
            sink = sink + 1;
        }
    }
};

struct Scene : Pass {
    NOINLINE void cast_shadows(const Mesh &mesh) { sink = sink + mesh.intersect(200000); }

    NOINLINE void apply(const Mesh &mesh) override
    {
        cast_shadows(mesh);
        sink = sink + 1;
    }
};

template <typename T> NOINLINE void sample_all(const T &mesh)
{
    sink = sink + mesh.intersect(100);
}

int main()
{
    struct sigaction ending = {};
    ending.sa_handler = end;
    sigaction(SIGTERM, &ending, nullptr);
    std::vector<std::unique_ptr<Pass>> passes;
    passes.push_back(std::make_unique<Outline>());
    passes.push_back(std::make_unique<Scene>());
    const Mesh mesh;
    std::puts("ready");
    std::fflush(stdout);
    while (!ends) {
        for (auto &pass : passes)
            pass->apply(mesh);
        sample_all(mesh);
    }
    std::puts("ok");
    return 0;
}
